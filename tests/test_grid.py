"""The grid: what is measured, in which order, what is left out, and what a change invalidates."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fabricbench.config import parse_config
from fabricbench.errors import ConfigError, FabricbenchError
from fabricbench.grid import Grid, expand, read_grid, write_grid

BASE: dict[str, Any] = {
    "cluster": {"nodes": 4, "gpus_per_node": 2, "scale": {"bytes": 128, "time": 2}},
    "fabrics": {
        "ethernet": {"interface": "eth0", "rate": "25 Gbit/s"},
        "omnipath": {"interface": "opa0", "rate": "100 Gbit/s", "delay": "1 us"},
    },
    "backends": {"gloo": {"engine": "gloo"}, "mpi": {"engine": "mpi"}},
    "gpus": [2, 4],
    "repeats": 2,
    "workloads": {
        "vgg16": {"kind": "train", "model": "vgg16", "backends": ["gloo"]},
        "messages": {"kind": "micro", "ranks_per_node": 1},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """A copy of BASE with the value at a dotted path replaced."""
    config = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    place = config
    for key in parents:
        place = place[key]
    place[last] = value
    return config


def grid(config: dict[str, Any]) -> Grid:
    """The grid of a raw configuration, with a code key that says what it is for."""
    return expand(parse_config(config), code_key=lambda kind, launcher: f"{kind} {launcher}")


def ids(config: dict[str, Any]) -> set[str]:
    """The ids of all cells of a raw configuration."""
    return {cell.id for cell in grid(config).cells}


def slugs(config: dict[str, Any]) -> set[str]:
    """Workload and slug of all cells."""
    return {f"{cell.cell.workload}/{cell.cell.slug}" for cell in grid(config).cells}


def test_cells_are_the_product_block_by_block() -> None:
    """Every combination is one cell; a block is whole before the next."""
    cells = [cell.cell for cell in grid(BASE).cells]
    order = [(c.repeat, c.workload, c.gpus, c.backend["name"], c.fabric["name"]) for c in cells]
    assert len(order) == len(set(order)) == 2 * (2 * 2 * 2 + 2 * 2)
    repeats = [repeat for repeat, *_ in order]
    assert repeats == sorted(repeats)


def running_order(config: dict[str, Any]) -> list[tuple[tuple[Any, ...], str]]:
    """(repeat, workload, gpus, backend) and fabric of all cells as they are run."""
    cells = [cell.cell for cell in grid(config).cells]
    return [((c.repeat, c.workload, c.gpus, c.backend["name"]), c.fabric["name"]) for c in cells]


def test_fabrics_of_one_group_run_next_to_each_other() -> None:
    """What is compared runs close together: workload, GPU count and backend change before they come back."""
    groups = [group for group, _ in running_order(BASE)]
    assert [group for group, before in zip(groups, [None, *groups], strict=False) if group != before] == list(
        dict.fromkeys(groups)
    )


def test_no_fabric_always_comes_first() -> None:
    """The seed draws which fabric of a group is first, in each group anew."""
    first = {}
    for group, fabric in running_order(changed("repeats", 10)):
        first.setdefault(group, fabric)
    share = list(first.values()).count("ethernet") / len(first)
    assert 0.3 < share < 0.7


def test_the_order_is_drawn_by_the_seed_and_changes_no_cell() -> None:
    """One seed, one order; another seed orders the same cells otherwise, so nothing is measured again."""
    other = changed("seed", 2)
    assert running_order(BASE) == running_order(copy.deepcopy(BASE))
    assert running_order(other) != running_order(BASE)
    assert ids(other) == ids(BASE)
    assert grid(other).campaign["seed"] == 2


def test_one_more_fabric_leaves_the_order_of_the_others() -> None:
    """Each cell draws its own place."""
    more = changed("fabrics.third", {"interface": "eth9", "rate": "10 Gbit/s"})
    assert [cell for cell in running_order(more) if cell[1] != "third"] == running_order(BASE)


def test_cell_is_fully_resolved() -> None:
    """A cell holds fabric, backend, environment and placement, with nothing left to look up."""
    cell = next(c.cell for c in grid(BASE).cells if c.cell.slug == "omnipath-mpi-4-r2")
    assert cell.fabric == {
        "name": "omnipath", "kind": "emulated", "interface": ["opa0"], "subnet": None, "adapter": [],
        "port": 1, "provider": None, "ports_per_node": 1, "rate_bit_s": 100_000_000_000,
        "effective_bit_s": None, "link_bit_s": 390_625_000, "delay_s": 2e-6, "jitter_s": 0.0, "loss": 0.0,
    }  # fmt: skip
    assert cell.backend == {
        "name": "mpi", "engine": "mpi", "library": "mpich", "transport": "ofi", "buffers": "host",
    }  # fmt: skip
    assert cell.binding == {"cpu": "auto", "memory": "auto", "near": "auto"}
    assert cell.environment["FI_TCP_IFACE"] == "opa0"
    assert (cell.gpus, cell.nodes, cell.ranks_per_node, cell.repeat) == (4, 4, 1, 2)
    assert (cell.launcher, cell.scale) == ("emulated", {"bytes": 128, "time": 2})


@pytest.mark.parametrize(("gpus", "placement"), [(1, (1, 1)), (2, (1, 2)), (8, (4, 2))])
def test_placement_fills_nodes(gpus: int, placement: tuple[int, int]) -> None:
    """Ranks fill nodes; fewer ranks than a node takes stay on one."""
    config = changed("workloads.vgg16.gpus", [gpus])
    cell = next(c.cell for c in grid(config).cells if c.cell.workload == "vgg16")
    assert (cell.nodes, cell.ranks_per_node) == placement


def test_later_environment_wins() -> None:
    """Workload overrules backend, backend fabric, fabric the campaign, and that the table."""
    config = changed("environment", {"GLOO_SOCKET_IFNAME": "x", "A": 1, "B": 1, "C": 1, "D": 1})
    config["fabrics"]["ethernet"]["environment"] = {"B": 2, "C": 2, "D": 2}
    config["backends"]["gloo"]["environment"] = {"C": 3, "D": 3}
    config["workloads"]["vgg16"]["environment"] = {"D": 4}
    cell = next(
        c.cell for c in grid(config).cells if c.cell.slug == "ethernet-gloo-2-r1" and c.cell.kind == "train"
    )
    assert cell.environment == {"GLOO_SOCKET_IFNAME": "x", "A": "1", "B": "2", "C": "3", "D": "4"}


def test_null_takes_a_variable_out() -> None:
    """A null takes out what the table or an earlier level set, and the cell says so; a later may set it."""
    config = changed("environment", {"FI_TCP_IFACE": None, "A": 1, "B": None})
    config["backends"]["mpi"]["environment"] = {"A": None}
    config["workloads"]["messages"]["environment"] = {"B": "b"}
    cell = next(c.cell for c in grid(config).cells if c.cell.backend["name"] == "mpi")
    assert cell.environment == {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "B": "b"}
    assert cell.unset == ["A", "FI_TCP_IFACE"]


@pytest.mark.parametrize(
    "value", ["AWS Libfabric", "^LL128", "shm+cxi:cxi0|shm+cxi:cxi1", "a&b $X {x} '\"", ""]
)
def test_values_are_passed_on_verbatim(value: str) -> None:
    """Blanks, carets, pipes and what a shell would take are a variable's value, as written."""
    config = changed("backends.gloo.environment", {"A": value})
    assert next(c.cell for c in grid(config).cells if c.cell.kind == "train").environment["A"] == value


def test_tokens_in_a_users_values() -> None:
    """A user's value may say where the fabric's names go."""
    config = changed("fabrics.ethernet.environment", {"A": "x={interface},{address}"})
    cell = next(c.cell for c in grid(config).cells if c.cell.fabric["name"] == "ethernet")
    assert cell.environment["A"] == "x=eth0,{address}"


@pytest.mark.parametrize(
    ("key", "matchers", "left"),
    [
        ("only", [{"workload": "vgg16", "gpus": 2, "fabric": "ethernet"}], 2),
        ("only", [{"workload": "vgg16"}, {"backend": "mpi"}], 8 + 8),
        ("except", [{"workload": "vgg16"}, {"repeat": [2]}], 8),
        ("except", [{"fabric": ["ethernet", "omnipath"], "gpus": [4]}], 12),
    ],
)
def test_only_and_except(key: str, matchers: list[dict[str, Any]], left: int) -> None:
    """A cell stays if any of `only` matches and none of `except`; a matcher's keys must all match."""
    cells = grid(changed(key, matchers)).cells
    assert len(cells) == left
    assert ids(changed(key, matchers)) < ids(BASE)


def test_workload_leaves_out_its_own_cells() -> None:
    """A workload's `except` touches no other workload."""
    gone = slugs(BASE) - slugs(changed("workloads.vgg16.except", [{"fabric": "omnipath", "repeat": 2}]))
    assert gone == {"vgg16/omnipath-gloo-2-r2", "vgg16/omnipath-gloo-4-r2"}


def test_nothing_left_is_a_mistake() -> None:
    """A configuration that leaves no cell is told so."""
    with pytest.raises(ConfigError, match="only, except: leave no cell"):
        grid(changed("except", [{"gpus": [2, 4]}]))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("workloads.new", {"kind": "cfd", "backends": ["gloo"]}, "cfd runs on mpi"),
        ("workloads.messages.gpus", [1], "a message needs two ranks"),
        ("workloads.vgg16.gpus", [3], "3 ranks don't fill nodes of 2"),
        ("workloads.vgg16.gpus", [16], "needs 8 nodes, the cluster has 4"),
        ("workloads.new", {"kind": "cfd", "backends": ["mpi"], "process_grid": [2, 1, 1]},
         "process_grid [2, 1, 1] has 2 places for 4 ranks"),
        ("backends.gloo.engine", "nccl", "nccl moves data between the GPUs of one machine past the network"),
    ],
)  # fmt: skip
def test_unsupported_has_its_reason(path: str, value: Any, reason: str) -> None:
    """What can't be measured is no cell, and stands once, for all repeats, with its reason."""
    rows = [row for row in grid(changed(path, value)).unsupported if row.reason.startswith(reason)]
    assert rows
    assert len(rows) == len({(row.workload, row.fabric, row.backend, row.gpus) for row in rows})


def test_the_solver_has_no_use_for_a_ring() -> None:
    """Its messages are halos, and its reduction is one number: only the all-reduce makes the engine ring."""
    config = changed("backends.mpi.engine", "ring")
    config["workloads"]["flow"] = {"kind": "cfd", "backends": ["mpi"]}
    (reason,) = {row.reason for row in grid(config).unsupported if row.workload == "flow"}
    assert (
        reason
        == "cfd runs on mpi: it sends halos, and reduces one number, so a ring would be no other engine"
    )


def test_training_runs_on_every_engine() -> None:
    """Over MPI with the resolved transport, and on a core more, for the thread that calls MPI."""
    config = changed("workloads.vgg16.backends", ["gloo", "mpi", "ring"])
    config["backends"]["ring"] = {"engine": "ring"}
    cells = {c.cell.backend["engine"]: c.cell for c in grid(config).cells if c.cell.workload == "vgg16"}
    assert sorted(cells) == ["gloo", "mpi", "ring"]
    for engine in ("mpi", "ring"):
        assert (cells[engine].backend["transport"], cells[engine].cpus_per_rank) == ("ofi", 2)


def test_nccl_needs_cuda() -> None:
    """On a host nccl is selectable, but no workload's device can use it."""
    config = changed("cluster", {"kind": "host", "gpus_per_node": 4})
    config["fabrics"] = {"loopback": {"interface": "lo"}}
    config["backends"]["gloo"] = {"engine": "nccl"}
    config["workloads"] = {"vgg16": {"kind": "train", "model": "vgg16", "backends": ["gloo"]}}
    with pytest.raises(ConfigError) as caught:
        grid(config)
    assert str(caught.value) == (
        "config: workloads.vgg16: can't run on gloo over loopback with 2 GPUs: "
        "nccl needs device cuda; the workload's device is cpu"
    )


def test_why_no_cell_can_run() -> None:
    """A campaign without any cell is told why, in three lines at most."""
    config = changed("workloads.vgg16.gpus", [3, 5, 7, 32])
    del config["workloads"]["messages"]
    with pytest.raises(ConfigError) as caught:
        grid(config)
    lines = str(caught.value).splitlines()
    assert [line.rpartition(": ")[2] for line in lines[:2]] == [
        "3 ranks don't fill nodes of 2",
        "5 ranks don't fill nodes of 2",
    ]
    assert lines[2:] == ["config: no cell can run, for 2 more reasons like these"]


SLURM: dict[str, Any] = {
    "cluster": {"kind": "slurm", "nodes": 4, "gpus_per_node": 2},
    "fabrics": {
        "ethernet": {"kind": "ethernet-tcp", "interface": ["eno1", "eth0"], "ports_per_node": 1},
        "omnipath": {"kind": "omnipath", "interface": "ib0", "adapter": "hfi1_0", "rate": "100 Gbit/s"},
    },
    "backends": {
        "nccl": {"engine": "nccl", "gpudirect": True},
        "gloo": {"engine": "gloo"},
        "mpi": {"engine": "mpi", "library": "openmpi4"},
        "mpi-cuda": {"engine": "mpi", "library": "openmpi4", "buffers": "device"},
    },
    "gpus": [4],
    "repeats": 1,
    "workloads": {
        "vgg16": {"kind": "train", "model": "vgg16", "device": "cuda", "backends": ["nccl", "gloo"]},
        "euler": {"kind": "cfd", "cells": [64, 64, 64], "backends": ["mpi", "mpi-cuda"]},
    },
}


@pytest.mark.parametrize("kind", ["slurm", "allocation"])
def test_cells_of_a_real_cluster_are_planned(kind: str) -> None:
    """A real cluster's cells have a device, the fabric's transport, and tokens where nodes differ."""
    config = copy.deepcopy(SLURM)
    config["cluster"]["kind"] = kind
    made = grid(config)
    cells = {cell.cell.slug.removesuffix("-4-r1"): cell.cell for cell in made.cells}
    assert set(cells) == {
        "ethernet-gloo", "omnipath-gloo", "omnipath-nccl", "ethernet-mpi", "omnipath-mpi",
    }  # fmt: skip
    assert {cell.launcher for cell in cells.values()} == {kind}
    assert cells["omnipath-nccl"].device == "cuda"
    assert cells["ethernet-gloo"].environment == {"GLOO_SOCKET_IFNAME": "{interface}"}
    assert cells["omnipath-nccl"].environment["HFI_UNIT"] == "0"
    assert cells["ethernet-mpi"].backend["transport"] == "tcp"
    assert cells["omnipath-mpi"].backend["transport"] == "psm2"
    assert {(row.fabric, row.backend): row.reason.split(";")[0] for row in made.unsupported} == {
        ("ethernet", "nccl"): "TCP stages GPU data through the host, so it has no GPUDirect",
        ("ethernet", "mpi-cuda"): "buffers: device needs device cuda",
        ("omnipath", "mpi-cuda"): "buffers: device needs device cuda",
    }


def test_writing_out_the_transport_is_no_difference() -> None:
    """A default that depends on the fabric is the same cell when it is written."""
    config = copy.deepcopy(SLURM)
    config["backends"]["mpi"] |= {"transport": "psm2", "buffers": "host"}
    config["workloads"]["euler"] |= {"fabrics": ["omnipath"]}
    before = {cell for cell in ids(SLURM) if "omnipath-mpi-4" in cell}
    assert before == {cell for cell in ids(config) if "omnipath-mpi-4" in cell}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("fabrics.ethernet.rate", "25Gbit"),
        ("fabrics.ethernet.rate", 25e9),
        ("fabrics.ethernet.loss", 0.0),
        ("fabrics.omnipath.delay", 1e-6),
        ("cluster.scale", {"time": 2.0, "bytes": 128.0}),
        ("gpus", [4, 2, 2]),
        ("workloads.vgg16.timeout", "1 h"),
        ("workloads.vgg16.steps", 10),
        ("accept_failures", True),
        ("cluster.nodes", 8),
        ("cluster.binding", {"memory": "auto"}),
        ("fabrics.ethernet.interface", ["eth0"]),
        ("fabrics.ethernet.kind", "emulated"),
        ("backends.mpi", {"engine": "mpi", "library": "mpich", "transport": "ofi", "buffers": "host"}),
        ("backends.gloo", {"engine": "gloo", "gpudirect": None}),
    ],
)
def test_what_is_no_difference(path: str, value: Any) -> None:
    """Spelling, defaults written out, time-outs and room in the cluster leave every cell as it is."""
    assert ids(changed(path, value)) == ids(BASE)


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("fabrics.ethernet.rate", "10 Gbit/s", "/ethernet-"),
        ("fabrics.omnipath.delay", "2 us", "/omnipath-"),
        ("backends.mpi.environment", {"MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD": 4096}, "-mpi-"),
        ("backends.gloo.environment", {"A": "1"}, "-gloo-"),
        ("workloads.messages.iterations", 3, "messages/"),
        ("workloads.vgg16.threads_per_rank", 2, "vgg16/"),
    ],
)
def test_a_change_invalidates_exactly_its_cells(path: str, value: Any, part: str) -> None:
    """A changed fabric, backend or workload changes its cells, all of them and no others."""
    before, after = ids(BASE), ids(changed(path, value))
    assert before - after == {cell for cell in before if part in cell}
    assert {cell.rsplit("-", 1)[0] for cell in after} == {cell.rsplit("-", 1)[0] for cell in before}


@pytest.mark.parametrize(("path", "value"), [("gpus", [1, 2, 4]), ("repeats", 3)])
def test_growing_the_grid_only_adds(path: str, value: Any) -> None:
    """A GPU count or repeat more leaves all former cells as they are."""
    assert ids(BASE) < ids(changed(path, value))


def test_code_key_is_part_of_the_id() -> None:
    """Other code of one kind of workload changes exactly its cells."""
    campaign = parse_config(BASE)
    other = expand(campaign, code_key=lambda kind, launcher: f"{kind} {launcher}" + "!" * (kind == "micro"))
    same = ids(BASE) & {cell.id for cell in other.cells}
    assert same == {cell for cell in ids(BASE) if cell.startswith("vgg16/")}


def test_grid_file_holds_the_grid(tmp_path: Path) -> None:
    """What is written is read back equal, and written again only when it differs."""
    path = tmp_path / "grid.json"
    first, second = grid(changed("workloads.vgg16.gpus", [3, 4])), grid(BASE)
    assert write_grid(first, path)
    assert read_grid(path) == first
    assert first.unsupported
    assert not write_grid(first, path)
    assert write_grid(second, path)
    assert read_grid(path) == second


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 99}'])
def test_other_files_are_no_grid(tmp_path: Path, text: str) -> None:
    """A file that is no grid, or of another schema, is one line that names it."""
    path = tmp_path / "grid.json"
    path.write_text(text)
    with pytest.raises(FabricbenchError, match=r"grid\.json"):
        read_grid(path)


def on_slurm(**cluster: Any) -> dict[str, Any]:
    """SLURM with more said of the cluster."""
    return {**copy.deepcopy(SLURM), "cluster": SLURM["cluster"] | cluster}


def test_placement_is_an_axis() -> None:
    """Both placements are measured side by side within a group; the slug of a spread cell says so."""
    made = grid(on_slurm(placement=["packed", "spread"], nodelist="n[0-7]"))
    mine = [cell.cell for cell in made.cells if cell.cell.backend["name"] == "mpi"]
    assert {cell.slug for cell in mine} == {
        *("ethernet-mpi-4-r1", "ethernet-mpi-4-spread-r1", "omnipath-mpi-4-r1", "omnipath-mpi-4-spread-r1"),
    }
    places = [place for place, cell in enumerate(made.cells) if cell.cell.backend["name"] == "mpi"]
    assert places == list(range(places[0], places[0] + 4))
    spread = next(cell for cell in mine if "spread" in cell.slug)
    assert spread.site["placement"] == spread.placement == "spread"


@pytest.mark.parametrize(
    ("cluster", "placements"),
    [
        ({"nodelist": "n[0-1]"}, {"packed"}),
        ({"nodelist": "n[0-2]"}, {"packed"}),  # spread takes the first two as well
        ({"nodelist": "n[0-3]"}, {"packed", "spread"}),
        ({"kind": "allocation", "nodes": 2}, {"packed"}),
        ({"kind": "allocation", "nodes": 4}, {"packed", "spread"}),
    ],
)
def test_where_there_is_one_way_to_place_it_is_packed(cluster: dict[str, Any], placements: set[str]) -> None:
    """A cell on one node, on all that there are, or on the same either way, isn't measured twice."""
    config = on_slurm(placement=["packed", "spread"], **cluster)
    config["gpus"] = [2, 4]
    made = [cell.cell for cell in grid(config).cells]
    assert {cell.placement for cell in made if cell.nodes == 1} == {"packed"}
    assert {cell.placement for cell in made if cell.nodes == 2} == placements


def test_a_rank_gets_cores_for_its_threads_and_its_engine_s() -> None:
    """Gloo and NCCL have a thread of their own, MPI has none; what the config says is taken as it is."""
    for given in ({}, {"cpus_per_rank": 5}):
        for cell in grid(on_slurm(**given)).cells:
            own = cell.cell.threads_per_rank + (cell.cell.backend["engine"] != "mpi")
            assert (
                cell.cell.site["cpus_per_rank"] == cell.cell.cpus_per_rank == given.get("cpus_per_rank", own)
            )


def test_matchers_know_placements() -> None:
    """`except` leaves out by placement."""
    config = on_slurm(placement=["packed", "spread"], nodelist="n[0-7]")
    config["except"] = [{"placement": "spread", "fabric": "omnipath"}]
    left = {cell.cell.fabric["name"] for cell in grid(config).cells if cell.cell.placement == "spread"}
    assert left == {"ethernet"}


def test_a_cell_larger_than_the_list_of_nodes_is_unsupported() -> None:
    """With the number that cluster.nodelist leaves."""
    config = on_slurm(nodelist="n[0-2]", exclude="n[1-2]")
    config["gpus"] = [2, 4]
    reasons = {row.reason for row in grid(config).unsupported if row.gpus == 4}
    assert "needs 2 nodes, cluster.nodelist leaves 1" in reasons


@pytest.mark.parametrize(
    ("cluster", "another"),
    [
        ({"slurm": {"partition": "gpu"}}, True),
        ({"slurm": {"constraint": "ib"}}, True),
        ({"slurm": {"exclusive": False}}, True),
        ({"modules": ["gcc"]}, True),
        ({"container": "x.sif"}, True),
        ({"cpus_per_rank": 8}, True),
        (
            {"slurm": {"exclusive": True, "requeue": True, "account": "a", "qos": "q", "setup": "9 min"}},
            False,
        ),
        ({"nodelist": "n[0-3]", "exclude": "n9", "bootstrap": "eth0", "concurrent_cells": 2}, False),
        ({"slurm": {"reservation": "r", "memory": "all", "options": ["--x"]}}, False),
    ],
)
def test_what_chooses_machines_makes_another_cell(cluster: dict[str, Any], another: bool) -> None:
    """Who pays, how long it may take and which of the listed nodes it is don't."""
    assert (ids(on_slurm(**cluster)) != ids(SLURM)) is another


@pytest.mark.parametrize(
    ("backend", "launch"),
    [
        ({}, "pmi2"),
        ({"library": "intel-mpi"}, "pmi2"),
        ({"library": "openmpi5"}, "pmix"),
        ({"library": "openmpi4", "launch": "mpirun"}, "mpirun"),
        ({"library": "mpich", "launch": "pmix"}, "pmix"),
    ],
)
def test_how_mpi_is_started_follows_from_its_library(backend: dict[str, Any], launch: str) -> None:
    """Unless it is said; it is part of the cell."""
    config = on_slurm()
    config["backends"] = {"mpi": {"engine": "mpi"} | backend}
    config["workloads"] = {"euler": SLURM["workloads"]["euler"] | {"backends": ["mpi"]}}
    assert {cell.cell.backend["launch"] for cell in grid(config).cells} == {launch}


def test_cells_without_slurm_have_no_site() -> None:
    """Nothing of Slurm's is in an emulated cell."""
    assert {cell.cell.placement for cell in grid(BASE).cells} == {""}
    assert all(cell.cell.site == {} and "launch" not in cell.cell.backend for cell in grid(BASE).cells)


def sweep(**params: Any) -> dict[str, Any]:
    """BASE with one training workload of these parameters."""
    config = copy.deepcopy(BASE)
    config["workloads"] = {"vgg16": {"kind": "train", "model": "vgg16", "backends": ["gloo"], **params}}
    return config


def test_a_list_of_values_makes_cells_of_each() -> None:
    """Workload and slug stay as they are: the digest alone tells variants apart."""
    cells = [cell.cell for cell in grid(sweep(batch=[32, 64], model=["vgg16", "resnet50"])).cells]
    assert len(cells) == 4 * len(grid(sweep()).cells)
    assert {(cell.workload, cell.params["model"], cell.params["batch"]) for cell in cells} == {
        ("vgg16", model, batch) for model in ("vgg16", "resnet50") for batch in (32, 64)
    }
    assert slugs(sweep(batch=[32, 64])) == slugs(sweep(batch=64))


def test_a_value_more_measures_nothing_again() -> None:
    """A scalar that becomes a list keeps its cells, by id, and the order in which they run."""
    before = [cell.id for cell in grid(sweep(batch=64)).cells]
    after = [cell.id for cell in grid(sweep(batch=[32, 64])).cells]
    more = [cell.id for cell in grid(sweep(batch=[16, 64, 32])).cells]
    assert set(before) < set(after) < set(more)
    assert [cell for cell in after if cell in set(before)] == before
    assert [cell for cell in more if cell in set(after)] == after
    assert [cell.id for cell in grid(sweep(batch=[64])).cells] == before


def test_variants_of_a_group_run_next_to_each_other_in_drawn_order() -> None:
    """Backend and GPU count first, then the variant, then the fabric; no variant is always the first."""
    config = sweep(batch=[16, 32, 64]) | {"repeats": 8}
    rows = [
        ((c.repeat, c.gpus), c.params["batch"], c.fabric["name"])
        for c in (cell.cell for cell in grid(config).cells)
    ]
    groups = [group for group, _, _ in rows]
    assert groups == sorted(groups, key=groups.index)
    variants = [(group, batch) for group, batch, _ in rows]
    assert variants == sorted(variants, key=variants.index)
    first = {next(batch for group, batch, _ in rows if group == one) for one in set(groups)}
    assert len(first) > 1


def test_inceptions_images_are_larger_in_a_list_too() -> None:
    """Only where no size is given, and only that model's."""
    sizes = {(c.cell.params["model"], c.cell.params["image_size"]) for c in
             grid(sweep(model=["vgg16", "inception_v3"])).cells}  # fmt: skip
    assert sizes == {("vgg16", 224), ("inception_v3", 299)}
    given = grid(sweep(model=["vgg16", "inception_v3"], image_size=128)).cells
    assert {cell.cell.params["image_size"] for cell in given} == {128}


def test_matchers_name_parameters() -> None:
    """Several keys must all match; a workload without the parameter matches none of its values."""
    config = copy.deepcopy(BASE)
    config["workloads"]["vgg16"] |= {"batch": [32, 64]}
    config["except"] = [{"workload": "vgg16", "batch": 64, "gpus": 4}]
    found = {(c.cell.params.get("batch"), c.cell.gpus) for c in grid(config).cells}
    assert found == {(32, 2), (32, 4), (64, 2), (None, 2), (None, 4)}
    config["only"] = [{"batch": [32]}]
    assert {c.cell.workload for c in grid(config).cells} == {"vgg16"}


def test_what_cannot_run_is_one_row_for_all_variants() -> None:
    """The reason holds whatever the parameters."""
    config = sweep(batch=[32, 64], backends=["mpi"]) | {"gpus": [2]}
    config["workloads"]["messages"] = BASE["workloads"]["messages"]
    found = grid(config).unsupported
    assert len(found) == len({(row.fabric, row.backend, row.gpus, row.reason) for row in found})


def test_the_campaign_in_the_grid_has_parameters_as_configured(tmp_path: Path) -> None:
    """Lists stay lists there; the combinations stand in the cells."""
    made = grid(sweep(batch=[32, 64]))
    assert made.campaign["workloads"]["vgg16"]["params"]["batch"] == [32, 64]
    assert "variants" not in made.campaign["workloads"]["vgg16"]
    write_grid(made, tmp_path / "grid.json")
    assert [c.id for c in read_grid(tmp_path / "grid.json").cells] == [c.id for c in made.cells]
