"""What else differed between two fabrics: known answers, nothing hidden, nothing made up."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from records import make_cell, make_failure, make_mislabelled, make_on_slurm, make_record

from fabricbench.analysis.differences import DIFFERENCE_DTYPES, KINDS, differences
from fabricbench.record import Record

FABRICS = ["ethernet", "opa"]


def a_pair(**changes: Any) -> tuple[Record, Record]:
    """A good record of each side: ethernet, the baseline, and opa."""
    there, here = (make_record(make_cell(fabric=fabric, **changes)) for fabric in FABRICS)
    return there, here


def unexpected(*records: Record) -> list[tuple[str, str, str, str]]:
    """Kind, what, this side and that side of the differences that aren't expected."""
    table = differences(records, FABRICS)
    rows = table.loc[~table["expected"], ["kind", "what", "this_side", "that_side"]]
    return [tuple(row) for row in rows.itertuples(index=False)]


def test_only_the_selection_differs() -> None:
    """Variables that select the fabric and its interface's name are shown as expected, and nothing else."""
    table = differences(a_pair(), FABRICS)
    assert set(table["fabric"]) == {"opa"}
    assert set(table["baseline"]) == {"ethernet"}
    assert [
        tuple(row) for row in table[["kind", "what", "this_side", "that_side"]].itertuples(index=False)
    ] == [
        ("environment", "GLOO_SOCKET_IFNAME", "opa0", "eth0"),
        ("interface", "name", "opa0", "eth0"),
        ("none", "nothing but the fabric", "", ""),
    ]
    assert table["expected"].all()


def in_provenance(*path: Any) -> Callable[[Record, Any], None]:
    """What sets a value deep in a record's provenance."""

    def put(record: Record, value: Any) -> None:
        place: Any = record.provenance
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return put


@pytest.mark.parametrize(
    ("change", "value", "row"),
    [
        (in_provenance("python"), "3.12.1", ("version", "python", "3.12.1", "3.11.2")),
        (in_provenance("fabricbench"), "0.2.0", ("version", "fabricbench", "0.2.0", "0.1.0")),
        (in_provenance("revision"), None, ("version", "revision", "not recorded", "4f2c9d1")),
        (in_provenance("nodes", 0, "clocksource"), "hpet", ("machine", "clock source", "hpet", "tsc")),
        (
            in_provenance("nodes", 0, "governor"),
            "powersave",
            ("machine", "governor", "powersave", "not recorded"),
        ),
        (
            in_provenance("nodes", 0, "hosts"),
            ["n0", "n1", "n2", "n9"],
            ("nodes", "node set", "n0-n2, n9", "n0-n3"),
        ),
        (
            in_provenance("ranks", 0, "environment", "NCCL_ALGO"),
            "Ring",
            ("environment", "NCCL_ALGO", "not set; Ring", "not set"),
        ),
        (
            in_provenance("ranks", 2, "versions", "mpich"),
            "4.0.2",
            ("version", "mpich", "4.0.2; 5.0.0", "5.0.0"),
        ),
        (in_provenance("ranks", 1, "threads"), 4, ("binding", "threads of a rank", "1; 4", "1")),
        (in_provenance("ranks", 1, "cores"), [2, 3], ("binding", "cores of a rank", "0-1; 2-3", "0-1")),
        (
            in_provenance("ranks", 0, "hidden_config"),
            ["/etc/nccl.conf"],
            ("configuration", "file outside the job", "/etc/nccl.conf", "none"),
        ),
        (
            in_provenance("nodes", 0, "gpus"),
            [{"name": "V100", "driver": None}],
            ("machine", "GPU", "V100", "not recorded"),
        ),
        (
            in_provenance("nodes", 0, "interfaces", "opa0", "mtu"),
            9000,
            ("interface", "MTU", "9000", "1500"),
        ),
    ],
)
def test_a_second_change_is_told(
    change: Callable[[Record, Any], None], value: Any, row: tuple[str, ...]
) -> None:
    """Whatever differs beside the fabric is a row with both sides, and the pair isn't said to be clean."""
    there, here = a_pair()
    change(here, value)
    assert unexpected(there, here) == [row]
    assert "none" not in set(differences([there, here], FABRICS)["kind"])


def test_a_kernel_in_one_repeat_of_many_is_told() -> None:
    """Distinct values over repeats are joined, in order, on the side that has them."""
    records = [make_record(make_cell(fabric=fabric, repeat=i)) for fabric in FABRICS for i in (1, 2, 3)]
    records[-1].provenance["nodes"][0]["kernel"] = "6.13.0-amd64"
    assert unexpected(*records) == [("machine", "kernel", "6.12.8-amd64; 6.13.0-amd64", "6.12.8-amd64")]


def test_an_interface_may_have_its_own_driver_and_speed_but_one_interface_may_not() -> None:
    """Driver and speed follow from another interface; on the same one they are a second change."""
    there, here = a_pair()
    here.provenance["nodes"][0]["interfaces"]["opa0"] |= {"driver": "hfi1", "speed_bit_s": 1e11}
    assert unexpected(there, here) == []
    here.evidence["rails"] = there.evidence["rails"]
    here.provenance["nodes"][0]["interfaces"]["eth0"] |= {"driver": "hfi1", "speed_bit_s": 1e11}
    assert unexpected(there, here) == [
        ("interface", "driver", "hfi1", "veth"),
        ("interface", "speed", "100 Gbit/s", "10 Gbit/s"),
    ]


def test_adapter_ports_are_compared_too() -> None:
    """A rail of the form adapter:port gives the adapter's driver and that port's rate."""
    there, here = a_pair()
    for record, rate in ((there, 1e11), (here, 2e11)):
        record.evidence["rails"] = {node: ["mlx5_0:1", "mlx5_1:1"] for node in record.evidence["rails"]}
        ports = {"1": {"state": "ACTIVE", "link_layer": "InfiniBand", "rate_bit_s": rate}}
        adapter = {"driver": "mlx5_core", "ports": ports}
        record.provenance["nodes"][0]["adapters"] = {"mlx5_0": adapter, "mlx5_1": adapter}
    assert unexpected(there, here) == [("interface", "speed", "200 Gbit/s", "100 Gbit/s")]


def test_congestion_is_an_outcome_with_totals() -> None:
    """Retransmits are added up over cells and nodes; they differ, but nobody changed them."""
    records = [make_record(make_cell(fabric=fabric, repeat=i)) for fabric in FABRICS for i in (1, 2)]
    records[-1].evidence["congestion"]["n1"] = {"tcp_retransmits": 1200, "ecn_marked": 0}
    table = differences(records, FABRICS).set_index("kind")
    found = table.loc["congestion"]
    assert (found["what"], found["this_side"], found["that_side"]) == (
        "tcp_retransmits",
        "1,206 in 2 cells",
        "6 in 2 cells",
    )
    assert found["expected"]
    assert "none" in table.index


def test_environment_is_the_effective_one_where_ranks_recorded_it() -> None:
    """What a rank really had wins over what the cell asked for; without it the cell's own counts."""
    there, here = a_pair()
    for record in (there, here):
        for rank in record.provenance["ranks"]:
            rank["environment"]["GLOO_SOCKET_IFNAME"] = "eth0"
    table = differences([there, here], FABRICS)
    assert "environment" not in set(table["kind"])
    for record in (there, here):
        for rank in record.provenance["ranks"]:
            del rank["environment"]
    table = differences([there, here], FABRICS)
    assert "environment" in set(table["kind"])


def test_records_that_say_nothing_are_not_called_alike() -> None:
    """Without provenance on either side the pair isn't said to differ in nothing."""
    there, here = (replace(record, provenance={}) for record in a_pair())
    assert unexpected(there, here)[0] == ("record", "provenance", "not recorded", "not recorded")


def test_only_good_cells_of_compared_fabrics_are_paired() -> None:
    """Failed and mislabelled cells, demonstrations, other GPU counts and a missing baseline make no pair."""
    here = make_cell(fabric="opa")
    for records in (
        [make_record(make_cell()), make_failure(here, "failed", "x")],
        [make_record(make_cell()), make_mislabelled(here)],
        [make_record(make_cell(gpus=1)), make_record(here)],
        [make_record(make_cell("cfd")), make_record(make_cell("cfd", fabric="opa"))],
        [make_record(here)],
        [],
    ):
        table = differences(records, FABRICS)
        assert table.empty
        assert {name: str(dtype) for name, dtype in table.dtypes.items()} == DIFFERENCE_DTYPES


def test_unexpected_comes_first_then_by_kind() -> None:
    """A reader meets what nobody meant to change before what was chosen, variables first."""
    there, here = a_pair()
    here.provenance["python"] = "3.12.1"
    here.provenance["ranks"][0]["environment"]["OMP_PROC_BIND"] = "true"
    table = differences([there, here], FABRICS)
    assert list(table["what"]) == ["OMP_PROC_BIND", "python", "GLOO_SOCKET_IFNAME", "name"]
    assert not table["expected"][:2].any()
    assert pd.Series(table["kind"]).isin(KINDS).all()


def test_another_partition_is_a_difference() -> None:
    """One that a profile chose is in no cell; the record's job tells."""
    there, here = (make_on_slurm(record.cell) for record in a_pair())
    assert not [row for row in unexpected(there, here) if row[1] == "partition"]
    here.provenance["job"]["partition"] = "fat"
    assert ("nodes", "partition", "fat", "batch") in unexpected(there, here)


def test_an_older_record_reads() -> None:
    """A binding that is one word, a fabric without ports, ranks with lists of hosts: no error, no noise."""
    records = []
    for record in a_pair():
        cell = replace(record.cell, binding="auto")
        rank = {"ranks": "0-3", "host": ["n0", "n1"], "cpu": "x", "versions": {"torch": "2"}}
        records.append(
            replace(record, cell=cell, evidence={"nodes": {}}, provenance={"kernel": "6", "ranks": [rank]})
        )
    assert unexpected(*records) == []


def test_a_users_own_variable_is_no_consequence_of_the_fabric() -> None:
    """What the selection table sets for each fabric is expected; what a user adds for one of them isn't."""
    here, there = a_pair()
    assert unexpected(here, there) == []
    tuned = replace(
        here, cell=replace(here.cell, environment={**here.cell.environment, "NCCL_BUFFSIZE": "8"})
    )
    tuned.provenance["ranks"][0]["environment"]["NCCL_BUFFSIZE"] = "8"
    assert [row[:2] for row in unexpected(tuned, there)] == [("environment", "NCCL_BUFFSIZE")]
