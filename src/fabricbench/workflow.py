"""What the Snakefile needs to know of a campaign, in one call.

Imported while Snakemake parses, on every node of a cluster as well: keep it light.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature
from math import ceil
from pathlib import Path
from typing import Any

from fabricbench import allocation, slurm_job
from fabricbench.campaign import Cluster
from fabricbench.campaign_lock import hold, may_be_in_use
from fabricbench.errors import FabricbenchError as UserError
from fabricbench.grid import Grid, GridCell, read_cells, write_grid
from fabricbench.nodelist import expand_nodelist
from fabricbench.plan import set_aside_unreadable
from fabricbench.snakemake_call import Call, this_call

__all__ = ["Prepared", "UserError", "prepare", "prepare_job", "this_call"]

FRAMES = (
    *("cells", "samples", "differences", "series", "ranks", "scaling"),
    *("comparisons", "sizes", "controls", "thresholds", "published"),
)
TABLES = (
    *(f"{table}.{form}" for form in ("parquet", "csv") for table in FRAMES),
    "facts.json",
)
PACKAGE = Path(__file__).parent
_PER_CPU = "mem_mb_per_cpu"
_MEMORY = ("mem_mb", "mem", _PER_CPU, "mem_mib")
_ASKED = "cell:cell="
"""How Snakemake names a job's target on a node: the rule, the wildcard, and the cell's id."""
PROFILES = {
    **dict.fromkeys(("emulated", "host"), "profiles/local"),
    **{"slurm": "profiles/slurm", "allocation": "profiles/allocation"},
}
"""The profile for each kind of cluster."""


Bound = int | str | Callable[[Any], int | str | None]
"""A Snakemake resource: the same for all cells, or a function of the wildcards."""


@dataclass(frozen=True)
class Prepared:
    """A campaign as its rules see it."""

    name: str
    cluster: Cluster
    cells: Mapping[str, GridCell]
    """By id, which is the record's path below results/<campaign>/ without its ending."""
    wanted: Sequence[str]
    """Ids of the cells that the tables need; none in a job on a node, which is asked for its own cell."""
    interfaces: str
    """All interfaces of an emulated node, as words."""
    accept_failures: bool
    defaults: Mapping[str, int | str]
    """Resources that a profile gives to every cell."""
    command: str
    """What to type to run this campaign."""
    tables: tuple[str, ...] = TABLES

    def cell(self, identity: str) -> GridCell:
        """A cell by its id; raises UserError where the grid doesn't name it (any more)."""
        if identity in self.cells:
            return self.cells[identity]
        raise UserError(_not_in_grid(identity, self.name))

    @cached_property
    def priorities(self) -> Mapping[str, int]:
        """By id: what Snakemake runs first, so that blocks run as the grid has them."""
        return {identity: len(self.cells) - place for place, identity in enumerate(self.cells)}

    @cached_property
    def resources(self) -> dict[str, Bound]:
        """Snakemake's resources of rule cell. One that some cells lack is None for them."""
        cluster = self.cluster
        # Snakemake would ask for 1000 MB where nobody said anything; 0 leaves memory to the site.
        said = self.defaults.keys() & _MEMORY or cluster.kind != "slurm"
        unsaid: slurm_job.Resources = {} if said else {"mem_mb": 0}
        if cluster.kind == "slurm" and cluster.slurm.memory is not None and _PER_CPU in self.defaults:
            unsaid[_PER_CPU] = 0  # which the executor would take before the config's
        jobs = {
            key: unsaid
            | slurm_job.resources(cluster, cell.cell, cell.timeout_s)
            | {"timeout_s": ceil(cell.timeout_s)}
            for key, cell in self.cells.items()
        }
        bound: dict[str, Bound] = {} if cluster.kind == "slurm" else {"machine": 1}
        for name in dict.fromkeys(name for job in jobs.values() for name in job):
            values = {key: job.get(name) for key, job in jobs.items()}
            first = next(iter(values.values()))
            # Snakemake asks functions again and again, of all waiting cells.
            same = first is not None and all(value == first for value in values.values())
            bound[name] = first if same and first is not None else _Lookup(values, self.name)
        return bound | {
            "accept_failures": int(self.accept_failures),
            "neighbours": self.interfaces,
            "bootstrap": cluster.bootstrap or "",
            "nodelist": ",".join(cluster.nodelist),
            "exclude": ",".join(cluster.exclude),
        }

    @property
    def partial(self) -> str:
        """What asks Slurm, before the partial page is made, why jobs left no reason; it never fails."""
        if self.cluster.kind != "slurm":
            return ""
        return f"python -m fabricbench post-mortem --grid results/{self.name}/grid.json || true; "

    @property
    def analysis_code(self) -> list[str]:
        """Source files whose change renews the tables."""
        return [*files_of(PACKAGE / "analysis", "*.py"), os.path.relpath(PACKAGE / "record.py")]

    @property
    def report_code(self) -> list[str]:
        """Source files whose change renews the page alone."""
        return files_of(PACKAGE / "report", "*.py")


def _not_in_grid(identity: str, campaign: str) -> str:
    return (
        f"{identity}: no cell of campaign {campaign}: its config or code is another since it was asked for; "
        "call Snakemake again, and `fabricbench plan` shows the cells"
    )


class _Lookup:
    """A function of wildcards that looks a cell up.

    Its signature is there ready-made: Snakemake inspects it at every call, which takes far longer than that.
    """

    __signature__ = Signature([Parameter("wildcards", Parameter.POSITIONAL_OR_KEYWORD)])

    def __init__(self, values: Mapping[str, int | str | None], campaign: str) -> None:
        self._values, self._campaign = values, campaign

    def __call__(self, wildcards: Any) -> int | str | None:
        try:
            return self._values[wildcards.cell]
        except KeyError:
            raise UserError(_not_in_grid(wildcards.cell, self._campaign)) from None


def prepare(
    config: Mapping[str, Any], files: Sequence[str], results: Path, call: Call, say: Callable[[str], None]
) -> Prepared:
    """Parse the config, expand the grid, and leave results/<campaign>/grid.json for the rules behind.

    `files` are where the config is from: read again, since Snakemake's own reader takes doubled keys and
    names like `on` for what YAML makes of them. What is done beside, and why, goes to `say` line by line.
    A call that starts jobs holds the campaign from here to its end; while it does, no other call writes.
    Raises ConfigError with one line per mistake, and other errors for what is no place to run it.
    """
    from fabricbench.config import load_config, parse_config
    from fabricbench.grid import expand

    load_config([Path(file) for file in files])
    campaign = parse_config(config)
    if campaign.cluster.modules:
        let_shells_load_modules(os.environ)
    if call.runs and (reason := why_not_here(campaign.cluster, call.executor, os.environ)):
        raise UserError(reason)
    grid = expand(campaign)
    folder = results / campaign.name
    place = folder / "grid.json"
    if call.runs:
        hold(folder)
    if call.may_write and (call.runs or not may_be_in_use(folder)):
        for line in set_aside_unreadable(grid, results):
            say(line)
        write_grid(grid, place)
    elif not place.exists():
        write_grid(grid, place)  # or there is nothing to plan with
    if call.runs and campaign.cluster.by_slurm and (folder / ".work").is_dir():
        from fabricbench.leftovers import sweep

        sweep(folder)
    if call.runs and campaign.cluster.kind == "slurm":
        _look_at_slurm(grid, campaign.cluster, results, call, say)
    if call.runs and campaign.cluster.kind == "allocation":
        for line in allocation.warnings(os.environ, os.uname().nodename):
            say(line)
    interfaces = dict.fromkeys(name for fabric in campaign.fabrics.values() for name in fabric.interface)
    return Prepared(
        name=campaign.name,
        cluster=campaign.cluster,
        cells=(cells := {cell.id: cell for cell in grid.cells}),
        wanted=list(cells),
        interfaces=" ".join(interfaces),
        accept_failures=campaign.accept_failures,
        defaults=call.defaults,
        command=shlex.join(
            ["snakemake", "--profile", PROFILES[campaign.cluster.kind], "--configfile", *files]
        ),
    )


def prepare_job(config: Mapping[str, Any], results: Path, arguments: Sequence[str] = ()) -> Prepared:
    """The same for a job that Snakemake started on a node: from the grid that the call left behind.

    The config may have been edited since. Nothing is checked again, as every cell would pay for it.
    `arguments`: Snakemake's. Raises UserError where the grid doesn't name the cell that they ask for.
    """
    grid, cells = read_cells(results / str(config.get("campaign", "default")) / "grid.json")
    for argument in arguments:
        if argument.startswith(_ASKED) and (identity := argument.removeprefix(_ASKED)) not in cells:
            raise UserError(_not_in_grid(identity, grid.campaign["name"]))
    cluster = Cluster.from_json(grid.campaign["cluster"])
    if cluster.modules:
        let_shells_load_modules(os.environ)
    fabrics = grid.campaign["fabrics"].values()
    interfaces = dict.fromkeys(name for fabric in fabrics for name in fabric["interface"])
    return Prepared(
        name=grid.campaign["name"],
        cluster=cluster,
        cells=cells,
        wanted=(),
        interfaces=" ".join(interfaces),
        accept_failures=grid.campaign["accept_failures"],
        defaults={},
        command="",
    )


def why_not_here(cluster: Cluster, executor: str, environment: Mapping[str, str]) -> str | None:
    """Why a campaign's cells can't be started by this executor, or in this place; None when they can."""
    kind, wanted = cluster.kind, "slurm" if cluster.kind == "slurm" else "local"
    if executor != wanted and cluster.by_slurm:
        started = "as jobs of Slurm" if kind == "slurm" else "inside one allocation"
        return (
            f"cluster.kind: {kind}: its cells are started {started}, not by Snakemake's executor {executor}; "
            f"call snakemake with --profile {PROFILES[kind]}"
        )
    if kind != "allocation":
        return None
    if "SLURM_JOB_ID" not in environment:
        return (
            f"cluster.kind: allocation: this is no Slurm allocation; get one, as "
            f"`salloc --exclusive --nodes={cluster.nodes}`, and call snakemake in it"
        )
    given = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST") or ""
    try:
        names = expand_nodelist(given)
    except ValueError:
        names = []
    allowed = set(cluster.nodelist or names) - set(cluster.exclude)
    usable = [name for name in names if name in allowed]
    if names and len(usable) < cluster.nodes:
        limits = " and ".join(f"cluster.{key}" for key in ("nodelist", "exclude") if getattr(cluster, key))
        return (
            f"cluster.nodes: {cluster.nodes}: this allocation ({given}) has {len(usable)}"
            f"{f' that {limits} leave' if limits else ''}; get a larger one, or lower cluster.nodes"
        )
    return allocation.why_no_meeting(cluster.bootstrap, allocation.interfaces_here(), os.uname().nodename)


def _look_at_slurm(
    grid: Grid, cluster: Cluster, results: Path, call: Call, say: Callable[[str], None]
) -> None:
    """End what a killed call left in Slurm, then ask whether it would take what is missing."""
    from fabricbench.cautions import of_site
    from fabricbench.leftovers import end_leftovers
    from fabricbench.scheduler import Request, try_out
    from fabricbench.slurm_polling import mend_executor

    mend_executor()
    for line in end_leftovers(grid, Path.cwd(), results=results):
        say(line)
    plain = {name: value for name, value in call.defaults.items() if value != ""}
    if cluster.slurm.memory is not None:
        plain.pop(_PER_CPU, None)
    asked: dict[tuple[str, ...], list[str]] = {}
    partitions: dict[str, None] = {}
    for cell in grid.cells:
        if not cell.path(results, grid.campaign["name"]).exists():
            job = plain | slurm_job.resources(cluster, cell.cell, cell.timeout_s)
            arguments = tuple(slurm_job.sbatch_arguments(job))
            where = (
                f"{cell.cell.gpus} ranks on {cell.cell.nodes} {'node' if cell.cell.nodes == 1 else 'nodes'}"
            )
            asked.setdefault(arguments, []).append(f"{cell.cell.workload}, {where}")
            partitions |= dict.fromkeys(filter(None, str(job.get("slurm_partition", "")).split(",")))
    if not asked:
        return
    trial = try_out([Request(whats[0], list(arguments), len(whats)) for arguments, whats in asked.items()])
    for line in [*trial.warnings, *of_site(partitions, call.status_command)]:
        say(line)
    if trial.refused:
        raise UserError("\n".join(trial.refused))


def use_this_python(checkout: Path) -> None:
    """Let rules find the tools beside the Python that runs Snakemake, activated or not, and this package.

    A rule's conda environment comes before both on its own PATH; the package itself it takes from here.
    """
    for name, first in (("PATH", Path(sys.executable).parent), ("PYTHONPATH", checkout / "src")):
        rest = [folder for folder in os.environ.get(name, "").split(os.pathsep) if folder]
        os.environ[name] = os.pathsep.join([str(first), *rest])


def let_shells_load_modules(environment: MutableMapping[str, str]) -> None:
    """Let a rule's shell know `module`, which login shells define and some sites don't export to others."""
    start = os.path.join(environment.get("MODULESHOME", ""), "init", "bash")
    exported = any(name.startswith("BASH_FUNC_module") for name in environment)
    if not exported and "BASH_ENV" not in environment and os.path.isfile(start):
        environment["BASH_ENV"] = start


def files_of(folder: Path, pattern: str = "*") -> list[str]:
    """Relative to the working directory, so that a checkout may move without any file being another."""
    return sorted(os.path.relpath(path) for path in folder.glob(pattern))
