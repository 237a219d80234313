"""What the Snakefile needs to know of a campaign, in one call.

Imported while Snakemake parses, on every node of a cluster as well: keep it light.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricbench.config import load_config, parse_config
from fabricbench.errors import FabricbenchError as UserError
from fabricbench.grid import GridCell, expand, write_grid
from fabricbench.plan import set_aside_unreadable

__all__ = ["Prepared", "UserError", "prepare"]

FRAMES = (
    *("cells", "samples", "differences", "series", "ranks", "scaling"),
    *("comparisons", "sizes", "controls", "thresholds"),
)
TABLES = (
    *(f"{table}.{form}" for form in ("parquet", "csv") for table in FRAMES),
    "facts.json",
)
PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class Prepared:
    """A campaign as its rules see it."""

    name: str
    cells: Mapping[str, GridCell]
    """By id, which is the record's path below results/<campaign>/ without its ending."""
    priorities: Mapping[str, int]
    """By id: what Snakemake runs first, so that blocks run as the grid has them."""
    interfaces: str
    """All interfaces of an emulated node, as words."""
    accept_failures: bool
    set_aside: list[str]
    """A line for every unreadable record that was moved away."""
    command: str
    """What to type to run this campaign."""
    tables: tuple[str, ...] = TABLES

    @property
    def analysis_code(self) -> list[str]:
        """Source files whose change renews the tables."""
        return [*files_of(PACKAGE / "analysis", "*.py"), os.path.relpath(PACKAGE / "record.py")]

    @property
    def report_code(self) -> list[str]:
        """Source files whose change renews the page alone."""
        return files_of(PACKAGE / "report", "*.py")


def prepare(config: Mapping[str, Any], files: Sequence[str], results: Path, *, may_write: bool) -> Prepared:
    """Parse the config, expand the grid, and leave results/<campaign>/grid.json for the rules behind.

    `files` are where the config is from: read again, since Snakemake's own reader takes doubled keys and
    names like `on` for what YAML makes of them. `may_write`: not for a dry run, which may go beside a real
    one, and not for the jobs that Snakemake starts, which parse the Snakefile as well.
    Raises ConfigError with one line per mistake.
    """
    load_config([Path(file) for file in files])
    campaign = parse_config(config)
    if campaign.cluster.kind in ("slurm", "allocation"):
        raise UserError(
            f"cluster.kind: {campaign.cluster.kind}: its cells can't be started yet; `fabricbench plan`, "
            "`select` and `doctor` work on this config"
        )
    grid = expand(campaign)
    set_aside = []
    if may_write:
        set_aside = set_aside_unreadable(grid, results)
        write_grid(grid, results / campaign.name / "grid.json")
    elif not (results / campaign.name / "grid.json").exists():
        write_grid(grid, results / campaign.name / "grid.json")  # or there is nothing to plan with
    interfaces = dict.fromkeys(name for fabric in campaign.fabrics.values() for name in fabric.interface)
    return Prepared(
        name=campaign.name,
        cells={cell.id: cell for cell in grid.cells},
        priorities={cell.id: len(grid.cells) - place for place, cell in enumerate(grid.cells)},
        interfaces=" ".join(interfaces),
        accept_failures=campaign.accept_failures,
        set_aside=set_aside,
        command=shlex.join(["snakemake", "--profile", "profiles/local", "--configfile", *files]),
    )


def use_this_python(checkout: Path) -> None:
    """Let rules find the tools beside the Python that runs Snakemake, activated or not, and this package.

    A rule's conda environment comes before both on its own PATH; the package itself it takes from here.
    """
    for name, first in (("PATH", Path(sys.executable).parent), ("PYTHONPATH", checkout / "src")):
        rest = [folder for folder in os.environ.get(name, "").split(os.pathsep) if folder]
        os.environ[name] = os.pathsep.join([str(first), *rest])


def is_dry_run(arguments: Sequence[str]) -> bool:
    """Whether Snakemake was called for a dry run; while the Snakefile is parsed it doesn't say so itself."""
    return any(re.fullmatch(r"--dry-?run|-[A-Za-z]*n[A-Za-z]*", argument) for argument in arguments)


def files_of(folder: Path, pattern: str = "*") -> list[str]:
    """Relative to the working directory, so that a checkout may move without any file being another."""
    return sorted(os.path.relpath(path) for path in folder.glob(pattern))
