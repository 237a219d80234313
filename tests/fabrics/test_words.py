"""The libraries' own words on the network they took."""

from fabricbench.fabrics.words import MOST_LINES, telling

NCCL = """\
n0:812:845 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>
n1:433:466 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.2<0>
n0:812:845 [0] NCCL INFO Using network IB
n0:812:861 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n0:812:861 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n0:812:861 [0] NCCL INFO Trees [0] -1/-1/-1->0->1
"""


def test_nccls_network_adapter_and_gpudirect_are_kept():
    """Which transport, which adapter, and whether the card reads the GPU's memory; once each."""
    assert telling(NCCL.splitlines()) == [
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>",
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.2<0>",
        "Using network IB",
        "via NET/IB/0/GDRDMA",
    ]


def test_mpichs_provider_and_cards_are_kept():
    """From its summary at start-up, and nothing of its sizes and limits."""
    lines = ["libfabric provider: tcp - 10.77.0.0/24", "num_nics: 1", "max_buffered_send: 128"]
    assert telling(lines) == lines[:2]


def test_a_flood_of_lines_is_cut():
    """A record stays small."""
    assert len(telling(f"Using network {n}" for n in range(1000))) == MOST_LINES
