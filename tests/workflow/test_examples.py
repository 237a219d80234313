"""The site files that come along: what each cell asks Slurm for, and what its library is told, kept as text.

After a change that was meant: RENEW_SNAPSHOTS=1 pytest tests/workflow/test_examples.py, then read git diff.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign
from jobs import sbatch_options

from fabricbench import slurm_job
from fabricbench.campaign import Campaign as Config
from fabricbench.config import load_config, parse_config
from fabricbench.grid import Grid, GridCell, expand
from fabricbench.launch.starters import PACKAGES, program, starter

SNAPSHOTS = Path(__file__).parent / "snapshots"
EXAMPLES = ("paper", "h100-infiniband", "slingshot")


def sbatch(config: Config, cell: GridCell) -> str:
    """What sbatch is asked for."""
    return " ".join(
        ["sbatch", *sbatch_options(slurm_job.resources(config.cluster, cell.cell, cell.timeout_s))]
    )


def ranks(config: Config, cell: GridCell) -> str:
    """What starts the ranks in the job; nodes, paths and interpreter by names in place of this machine's."""
    nodes = [f"node{number}" for number in range(cell.cell.nodes)]
    asked = slurm_job.resources(config.cluster, cell.cell, cell.timeout_s)
    work = Path("WORK")
    command = starter(
        cell.cell, gpus="gres" in asked or "--gpus-per-node" in str(asked["slurm_extra"])
    ).command(cell.cell, nodes, program(cell.cell, work))
    line = " ".join([*(f"{name}={value}" for name, value in sorted(command.env.items())), *command.argv])
    for found, name in ((",".join(nodes), "NODES"), (sys.executable, "python"), (PACKAGES, "SRC")):
        line = line.replace(found, name)
    return line


COMMANDS: tuple[Callable[[Config, GridCell], str], ...] = (sbatch, ranks)
"""Each gives a line for a cell."""


def snapshot(config: Config, grid: Grid) -> str:
    """Each workload on each backend and fabric: its variables, its commands at the least and most GPUs."""
    return "\n".join(line for part in _parts(config, grid) for line in part) + "\n"


def _parts(config: Config, grid: Grid) -> Iterator[list[str]]:
    ways: dict[str, list[GridCell]] = {}
    for cell in grid.cells:
        if cell.cell.repeat == 1:
            name = f"{cell.cell.workload} on {cell.cell.backend['name']} over {cell.cell.fabric['name']}"
            ways.setdefault(name, []).append(cell)
    for name, cells in sorted(ways.items()):
        sizes = sorted({cell.cell.gpus for cell in cells})
        shown = [cell for cell in cells if cell.cell.gpus in (sizes[0], sizes[-1])]
        shown.sort(key=lambda cell: (cell.cell.gpus, cell.cell.placement))
        yield [name, "=" * len(name)]
        yield [f"{key}={value}" for key, value in sorted(shown[0].cell.environment.items())]
        for cell in shown:
            many = "" if cell.cell.placement == "packed" else f", {cell.cell.placement}"
            size = "1 GPU" if cell.cell.gpus == 1 else f"{cell.cell.gpus} GPUs"
            yield [f"{size}{many}:", *(f"  {make(config, cell)}" for make in COMMANDS)]
        yield [""]


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_asks_for_is_as_written_down(name):
    """Every line for sbatch and srun, and every variable, of cells of each kind."""
    config = parse_config(load_config([ROOT / "config" / "examples" / f"{name}.yaml"]))
    made = snapshot(config, expand(config, lambda kind, launcher: "code"))
    place = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("RENEW_SNAPSHOTS"):
        place.write_text(made, encoding="utf-8")
    assert made == place.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_planned_by_the_slurm_profile(tmp_path, name):
    """A dry run plans a job for every cell, on a machine that has no Slurm."""
    config = (ROOT / "config" / "examples" / f"{name}.yaml").read_text(encoding="utf-8")
    campaign = Campaign(tmp_path / "campaign", {})
    campaign.write(config)
    output = campaign.snakemake("-n", profile="profiles/slurm")
    wanted = len(expand(parse_config(load_config([campaign.config_file]))).cells)
    assert len([line for line in output.splitlines() if line.startswith("Job ") and "-r" in line]) == wanted
