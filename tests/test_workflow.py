"""What the Snakefile asks."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fabricbench.campaign import Cluster, Scale
from fabricbench.config import load_config
from fabricbench.record import Record, write_record
from fabricbench.scheduler import Request
from fabricbench.snakemake_call import Call, is_dry_run, this_call
from fabricbench.workflow import (
    Prepared,
    UserError,
    let_shells_load_modules,
    prepare,
    prepare_job,
    why_not_here,
)

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "config" / "examples" / "paper.yaml"
SLURM = Call(may_write=True, runs=True, executor="slurm")


@pytest.mark.parametrize("arguments", [["-n"], ["--dry-run"], ["--dryrun"], ["-nq"], ["-pn"]])
def test_a_dry_run_is_recognised(arguments):
    """In each of its spellings."""
    assert is_dry_run(["snakemake", "--profile", "profiles/local", *arguments])


@pytest.mark.parametrize("arguments", [["-c2"], ["--unlock"], ["--rerun-incomplete"], ["-j", "4"]])
def test_a_real_run_is_no_dry_run(arguments):
    """Other options are not mistaken for it."""
    assert not is_dry_run(["snakemake", *arguments])


@pytest.mark.parametrize(
    ("arguments", "may_write", "runs", "executor"),
    [
        (["--profile", "profiles/slurm"], True, True, "slurm"),
        (["-n", "--profile", "profiles/slurm"], False, False, "slurm"),
        (["--profile", "profiles/slurm", "--unlock"], True, False, "slurm"),
        (["--profile", "profiles/allocation"], True, True, "local"),
        (["-c1", "--lint"], True, False, "local"),
        (["--not-snakemake's"], True, False, "local"),
    ],
)
def test_a_call_says_what_it_is_for(arguments, may_write, runs, executor, monkeypatch):
    """Whether it starts jobs, and by which executor, profiles included."""
    monkeypatch.chdir(ROOT)
    call = this_call(arguments)
    assert (call.may_write, call.runs, call.executor) == (may_write, runs, executor)


def test_a_call_knows_how_jobs_are_asked_of_and_goes_on_without_resources(monkeypatch):
    """What Snakemake keeps of resources may change with its version: then none is known."""
    monkeypatch.chdir(ROOT)
    assert this_call(["--profile", "profiles/slurm"]).status_command == "squeue"
    assert this_call(["-c1"]).status_command == ""
    monkeypatch.setattr("fabricbench.snakemake_call._given", lambda options: options.nothing_of_that_name)
    call = this_call(["--profile", "profiles/slurm"])
    assert (call.runs, call.executor, call.defaults) == (True, "slurm", {})


def test_a_call_knows_what_profiles_give_to_every_cell(monkeypatch):
    """Names in quotes or not; an expression is known to be there; Snakemake's own defaults aren't."""
    monkeypatch.chdir(ROOT)
    given = ["--default-resources", "slurm_partition='gpu'", "runtime=9", "mem_mb=1000*attempt"]
    call = this_call([*given, "--set-resources", "cell:slurm_account=me", "-c1"])
    assert call.defaults == {"slurm_partition": "gpu", "runtime": 9, "mem_mb": "", "slurm_account": "me"}
    assert this_call(["-c1"]).defaults == {}


@pytest.fixture
def slurm(monkeypatch) -> SimpleNamespace:
    """Modules that ask a Slurm, with made-up answers; what was asked is kept."""
    seen = SimpleNamespace(refused=[], left=["job 7 of an earlier call was cancelled"], asked=[], order=[])

    def end_leftovers(grid, folder, *, results):
        for line in seen.left:
            seen.order.append("leftovers")
            yield line

    def try_out(requests):
        seen.order.append("refusals")
        seen.asked = requests
        return SimpleNamespace(refused=seen.refused, warnings=["a warning"])

    def of_site(partitions, status_command):
        seen.site = list(partitions), status_command
        return ["a caution"]

    for name, functions in {
        "leftovers": {"end_leftovers": end_leftovers, "sweep": lambda folder: seen.order.append("sweep")},
        "scheduler": {"try_out": try_out, "Request": Request},
        "cautions": {"of_site": of_site},
    }.items():
        module = ModuleType(f"fabricbench.{name}")
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, f"fabricbench.{name}", module)
    return seen


def prepared(results: Path, call: Call = SLURM, said: list[str] | None = None) -> Prepared:
    """The paper's campaign."""
    say = [].append if said is None else said.append
    return prepare(load_config([PAPER]), [str(PAPER)], results, call, say)


def test_slurm_is_asked_before_anything_is_submitted(slurm, tmp_path):
    """What an earlier call left is ended first, and told; then each distinct shape of job is tried once."""
    said: list[str] = []
    prepared(tmp_path, said=said)
    assert said == [*slurm.left, "a warning", "a caution"]
    assert slurm.order == ["leftovers", "refusals"]
    shapes = [tuple(arguments) for _, arguments, _ in slurm.asked]
    assert len(shapes) == len(set(shapes)) < 40
    assert "vgg16, 512 ranks on 256 nodes" in [what for what, _, _ in slurm.asked]
    assert all(argument.startswith("--") for shape in shapes for argument in shape)


def test_what_slurm_would_refuse_stops_the_call(slurm, tmp_path):
    """With its lines and nothing else."""
    slurm.refused = ["cluster.slurm.partition: gpu: no such partition"]
    with pytest.raises(UserError, match=r"^cluster\.slurm\.partition: gpu: no such partition$"):
        prepared(tmp_path)


def test_a_measured_cell_is_not_asked_for(slurm, tmp_path):
    """Only what is missing will be submitted."""
    first = prepared(tmp_path)
    for name, cell in first.cells.items():
        if not name.startswith("cfd/"):
            path = tmp_path / "paper" / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_record(Record(cell=cell.cell, code_key=cell.code_key, status="ok"), path)
    prepared(tmp_path)
    assert {what.split(",")[0] for what, _, _ in slurm.asked} == {"cfd"}


def test_what_the_profile_gives_is_tried_too(slurm, tmp_path):
    """Else a partition that stands there would be missing from what is tried."""
    prepared(
        tmp_path, Call(may_write=True, runs=True, executor="slurm", defaults={"slurm_partition": "v100"})
    )
    assert slurm.site == (["v100"], "")
    assert all("--partition=v100" in arguments for _, arguments, _ in slurm.asked)


def test_a_call_that_runs_nothing_asks_nothing(slurm, tmp_path):
    """A dry run and the like leave Slurm alone, and work on any machine."""
    prepared(tmp_path, Call())
    assert slurm.order == []


def test_a_second_call_stops_before_it_writes(slurm, tmp_path, monkeypatch):
    """It leaves grid, records and Slurm's jobs alone; one that starts nothing doesn't write either."""
    prepared(tmp_path)
    place = tmp_path / "paper" / "grid.json"
    place.write_text("of the first call")
    slurm.order.clear()

    def refuse(folder):
        raise UserError(f"{folder.name}: another call")

    monkeypatch.setattr("fabricbench.workflow.hold", refuse)
    monkeypatch.setattr("fabricbench.workflow.may_be_in_use", lambda folder: True)
    with pytest.raises(UserError, match=r"^paper: another call$"):
        prepared(tmp_path)
    prepared(tmp_path, Call(may_write=True))
    assert place.read_text() == "of the first call"
    assert slurm.order == []


def test_work_of_killed_cells_is_swept(slurm, tmp_path):
    """By a call that starts jobs, before Slurm is asked for more."""
    (tmp_path / "paper" / ".work").mkdir(parents=True)
    prepared(tmp_path, Call())
    assert slurm.order == []
    prepared(tmp_path)
    assert slurm.order[0] == "sweep"


def test_a_cell_that_the_grid_does_not_name_is_one_line(slurm, tmp_path):
    """In a job whose grid was replaced, or for a file that somebody asked for by hand."""
    prepared(tmp_path)
    with pytest.raises(UserError, match=r"^train/x-00000000: no cell of campaign paper"):
        prepare_job({"campaign": "paper"}, tmp_path, ["--target-jobs", "cell:cell=train/x-00000000"])
    job = prepare_job({"campaign": "paper"}, tmp_path, ["--target-jobs", "all:"])
    job = prepare_job({"campaign": "paper"}, tmp_path, [f"cell:cell={next(iter(job.cells))}"])
    with pytest.raises(UserError, match=r"^train/x-00000000: no cell of campaign paper: .*call Snakemake"):
        job.cell("train/x-00000000")
    nodes = job.resources["nodes"]
    assert callable(nodes)
    with pytest.raises(UserError, match="no cell of campaign paper"):
        nodes(SimpleNamespace(cell="train/x-00000000"))


def test_the_config_s_memory_wins_over_a_profile_s_per_core(slurm, tmp_path):
    """The executor would take the latter first."""
    call = Call(may_write=True, runs=True, executor="slurm", defaults={"mem_mb_per_cpu": 500})
    assert prepared(tmp_path, call).resources["mem_mb_per_cpu"] == 0
    assert not [word for _, arguments, _ in slurm.asked for word in arguments if "mem-per-cpu" in word]


def test_memory_is_left_to_the_site_unless_somebody_says_it(slurm, tmp_path):
    """Snakemake's own 1000 MB are taken back; a profile's number stays."""
    config = load_config([PAPER])
    del config["cluster"]["slurm"]["memory"]

    def memory(**defaults: Any) -> Any:
        call = Call(defaults=defaults)
        return prepare(config, [str(PAPER)], tmp_path, call, print).resources.get("mem_mb")

    assert memory() == 0
    assert memory(mem_mb=4000) is None
    assert memory(mem_mb="") is None


def test_a_job_on_a_node_reads_the_grid_that_the_call_left(slurm, tmp_path):
    """The same cells and resources, without the config being read again."""
    call, job = prepared(tmp_path), prepare_job({"campaign": "paper"}, tmp_path)
    assert list(job.cells) == list(call.cells)
    assert not job.wanted
    wildcards = SimpleNamespace(cell=next(iter(call.cells)))
    for name, value in call.resources.items():
        other = job.resources[name]
        if callable(value):
            assert callable(other)
            assert other(wildcards) == value(wildcards)
        else:
            assert other == value


def test_resources_of_a_cell_are_there_by_name(slurm, tmp_path):
    """Functions of the wildcards only where cells differ."""
    made = prepared(tmp_path).resources
    assert made["cpus_per_task"] == 20
    assert made["bootstrap"] == "eth0"
    assert "slurm_partition" not in made
    assert "machine" not in made
    nodes = made["nodes"]
    assert callable(nodes)


def a_cluster(kind: str, **changes: Any) -> Cluster:
    """Two nodes."""
    return Cluster(kind=kind, nodes=2, gpus_per_node=1, binding={}, scale=Scale(bytes=1, time=1), **changes)


@pytest.mark.parametrize(
    ("cluster", "executor", "environment", "why"),
    [
        (a_cluster("slurm"), "slurm", {}, None),
        (
            a_cluster("slurm"),
            "local",
            {},
            "not by Snakemake's executor local; call snakemake with --profile pro",
        ),
        (a_cluster("emulated"), "local", {}, None),
        (a_cluster("host"), "slurm", {}, None),
        (
            a_cluster("allocation"),
            "slurm",
            {"SLURM_JOB_ID": "1"},
            "call snakemake with --profile profiles/alloc",
        ),
        (
            a_cluster("allocation"),
            "local",
            {},
            "this is no Slurm allocation; get one, as `salloc --exclusive --nod",
        ),
        (a_cluster("allocation"), "local", {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-1]"}, None),
        (
            a_cluster("allocation"),
            "local",
            {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n0"},
            "cluster.nodes: 2: this allocation (n0) has 1; get a larger one, or lower cluster.nodes",
        ),
        (
            a_cluster("allocation", exclude=("n1",)),
            "local",
            {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-1]"},
            "(n[0-1]) has 1 that cluster.exclude leave",
        ),
    ],
)
def test_a_call_in_the_wrong_place_is_one_line(cluster, executor, environment, why):
    """Another executor than the cluster's kind needs, no allocation, or too small a one."""
    said = why_not_here(cluster, executor, environment)
    assert said is None if why is None else why in (said or "")


def test_the_wrong_profile_stops_before_anything_is_written(slurm, tmp_path):
    """No grid, no records moved, nothing asked of Slurm."""
    with pytest.raises(UserError, match="--profile profiles/slurm"):
        prepared(tmp_path, Call(may_write=True, runs=True))
    assert list(tmp_path.iterdir()) == []
    assert slurm.order == []


def test_cells_elsewhere_share_one_machine(tmp_path):
    """Emulated cells run one after another; none of Slurm's resources is theirs."""
    file = ROOT / "config" / "config.yaml"
    made = prepare(load_config([file]), [str(file)], tmp_path, Call(), print)
    assert made.resources["machine"] == 1
    assert not {"nodes", "mem_mb", "slurm_extra"} & made.resources.keys()
    assert made.partial == ""
    assert "profiles/local" in made.command


def test_shells_of_rules_know_module(tmp_path):
    """Where a login shell knows it and didn't export it; what a site or user set stays."""
    (tmp_path / "init").mkdir()
    start = tmp_path / "init" / "bash"
    start.touch()
    home = {"MODULESHOME": str(tmp_path)}
    for given, wanted in (
        (home, str(start)),
        (home | {"BASH_FUNC_module%%": "() {}"}, None),
        (home | {"BASH_ENV": "mine"}, "mine"),
        ({"MODULESHOME": "/nowhere"}, None),
        ({}, None),
    ):
        environment = dict(given)
        let_shells_load_modules(environment)
        assert environment.get("BASH_ENV") == wanted
