"""The libraries' own words on the network they took."""

from fabricbench.fabrics.words import MOST_LINES, cause, telling

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


def test_the_cause_is_the_last_line_of_an_error_stack():
    """MPICH's stack ends with what went wrong, without the name of the function."""
    stack = [
        "Fatal error in internal_Init_thread: Other MPI error, error stack:",
        "internal_Init_thread(48)...: MPI_Init_thread failed",
        "MPIDI_OFI_mpi_init_hook(1500): OFI call ep_enable failed (default nic=tcp: Bad file descriptor)",
        "",
    ]
    assert cause(stack) == ["OFI call ep_enable failed (default nic=tcp: Bad file descriptor)"]
    assert cause(["libfabric provider: tcp", "error checking    : enabled"]) == []
