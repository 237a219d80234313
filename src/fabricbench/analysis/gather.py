"""Folders of records as one set of tables: one campaign without Snakemake, or several side by side."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fabricbench.analysis.compare import Axis, compare
from fabricbench.analysis.conclusions import conclude, rules_of
from fabricbench.analysis.differences import between
from fabricbench.analysis.table import Tables, collect, labels_of
from fabricbench.analysis.within import cell_flags
from fabricbench.errors import FabricbenchError, RecordError
from fabricbench.grid import SCHEMA, read_grid
from fabricbench.record import Record, failure_path, read_record

Json = Mapping[str, Any]
Gathered = tuple[Tables, dict[str, Any]]
"""Tables, and the grid that they are of, as grid.json has it."""


def gather(folders: Sequence[Path]) -> Gathered:
    """One or more folders (results/<campaign>) as tables; cells of several are pooled.

    A folder without grid.json is what its records are. Cells of several folders are named
    `<folder>/<cell>`, and have their folder in the column `campaign`. Raises FabricbenchError when a
    folder has no records.
    """
    names = _names(folders)
    grids = [grid_of(folder) for folder in folders]
    if len(folders) == 1:
        return collect(grids[0], folders[0]), grids[0]
    labels = labels_of(*grids)
    several = [
        _named(collect(grid, folder, labels), name)
        for folder, grid, name in zip(folders, grids, names, strict=True)
    ]
    grid = _together(grids, names)
    cells = pd.concat([tables.cells for tables in several], ignore_index=True)
    samples = pd.concat([tables.samples for tables in several], ignore_index=True)
    facts = _facts_together([tables.facts for tables in several])
    return Tables(
        cells=cells,
        samples=samples,
        differences=several[0].differences.iloc[:0],
        conclusions=conclude(cells, samples, grid["campaign"], facts),
        facts=facts,
    ), grid


def compared(before: Path, after: Path, margin: float | None, allow_versions: bool) -> Gathered:
    """Two campaigns, the first as the baseline: comparisons along `campaign`, all else held equal.

    `margin` replaces the first campaign's. What else differed between the two is in the differences.
    """
    tables, grid = gather([before, after])
    names = _names([before, after])
    rules = rules_of(grid["campaign"])
    rules = replace(rules, allow_versions=allow_versions, margin=rules.margin if margin is None else margin)
    flags = cell_flags(tables.conclusions.series)
    found = compare(tables.cells, [Axis("campaign", names[0])], rules, flags)
    grids = [grid_of(folder) for folder in (after, before)]
    new, old = (good_records(of, folder) for of, folder in zip(grids, (after, before), strict=True))
    differences = between(new, old, (names[1], names[0]), labels_of(*grids))
    none = tables.conclusions
    conclusions = replace(
        none,
        comparisons=found.reindex(columns=list(dict.fromkeys([*none.comparisons.columns, *found.columns]))),
        sizes=none.sizes.iloc[:0],
        controls=none.controls.iloc[:0],
        thresholds=none.thresholds.iloc[:0],
    )
    campaign = {**grid["campaign"], "compare": [{"by": "campaign", "baseline": names[0]}]}
    tables = replace(tables, differences=differences, conclusions=conclusions)
    return _apart(tables), {
        **grid,
        "campaign": campaign,
        "cells": [_apart_in(entry) for entry in grid["cells"]],
    }


def _apart(tables: Tables) -> Tables:
    """Fabrics named with their campaign, so that no square or curve pools the two."""
    cells = tables.cells
    names = cells["fabric"] + " of " + cells["campaign"]
    return replace(tables, cells=cells.assign(fabric=names.astype("string")))


def _apart_in(entry: Json) -> dict[str, Any]:
    """The same of an entry of the grid, whose id begins with its campaign."""
    cell = entry["cell"]
    fabric = {**cell["fabric"], "name": f"{cell['fabric']['name']} of {entry['campaign']}"}
    return {**entry, "cell": {**cell, "fabric": fabric}}


def grid_of(folder: Path) -> dict[str, Any]:
    """A folder's grid.json, or the grid that its records make; FabricbenchError if there are none."""
    if (folder / "grid.json").is_file():
        grid = read_grid(folder / "grid.json")
        return {
            "schema": SCHEMA,
            "campaign": dict(grid.campaign),
            "cells": [
                {
                    "id": cell.id,
                    "cell": vars(cell.cell),
                    "code_key": cell.code_key,
                    "timeout_s": cell.timeout_s,
                }
                for cell in grid.cells
            ],
            "unsupported": [vars(row) for row in grid.unsupported],
        }
    if not folder.is_dir():
        raise FabricbenchError(f"{folder}: is no folder; give a campaign's, as results/default")
    found: dict[str, Record] = {}
    for path in sorted(folder.glob("*/*-*.json")):
        try:
            record = read_record(path)
        except RecordError:
            continue  # what lies beside records is no record
        found.setdefault(record.id, record)
    if not found:
        raise FabricbenchError(f"{folder}: has no records (<workload>/<cell>.json); give a campaign's folder")
    return {
        "schema": SCHEMA,
        "campaign": {"name": folder.name, "fabrics": _fabrics_of(found.values())},
        "cells": [
            {"id": name, "cell": vars(record.cell), "code_key": record.code_key, "timeout_s": 0.0}
            for name, record in found.items()
        ],
        "unsupported": [],
    }


def good_records(grid: Json, folder: Path) -> Iterable[Record]:
    """The records of status ok that a grid names."""
    for entry in grid["cells"]:
        path = folder / f"{entry['id']}.json"
        try:
            record = read_record(path) if path.exists() else None
        except RecordError:
            continue
        if record is not None and record.status == "ok" and not failure_path(path).exists():
            yield record


def _fabrics_of(records: Iterable[Record]) -> dict[str, Any]:
    """The fabrics of these records as a config has them, variables left out."""
    return {record.cell.fabric["name"]: dict(record.cell.fabric) for record in records}


def _names(folders: Sequence[Path]) -> list[str]:
    """What campaigns are called side by side: their folders' names, or whole paths where these are equal."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    paths = [str(folder) for folder in folders]
    if len(set(paths)) < len(paths):
        raise FabricbenchError(f"{paths[0]}: is given twice; a comparison needs two folders")
    return paths


def _named(tables: Tables, name: str) -> Tables:
    """Tables whose cells are named after their campaign as well."""
    facts = {
        **tables.facts,
        "cells": {f"{name}/{cell}": of for cell, of in tables.facts["cells"].items()},
    }
    cells = tables.cells.assign(
        cell=(name + "/" + tables.cells["cell"]).astype("string"),
        campaign=pd.Series(name, index=tables.cells.index, dtype="string"),
    )
    samples = tables.samples.assign(cell=(name + "/" + tables.samples["cell"]).astype("string"))
    return replace(tables, cells=cells, samples=samples, facts=facts)


def _together(grids: Sequence[Json], names: Sequence[str]) -> dict[str, Any]:
    """One grid of all: the first one's rules, everybody's fabrics and cells."""
    fabrics = {name: of for grid in reversed(grids) for name, of in grid["campaign"]["fabrics"].items()}
    campaign = {**grids[0]["campaign"], "name": " and ".join(names), "fabrics": dict(sorted(fabrics.items()))}
    campaign["published"] = None  # which each campaign repeats with rates of its own
    return {
        "schema": SCHEMA,
        "campaign": campaign,
        "cells": [
            {**entry, "id": f"{name}/{entry['id']}", "campaign": name}
            for grid, name in zip(grids, names, strict=True)
            for entry in grid["cells"]
        ],
        "unsupported": [row for grid in grids for row in grid["unsupported"]],
    }


def _facts_together(several: Sequence[Json]) -> dict[str, Any]:
    """Facts of all cells; each campaign's provenance is counted on from those before."""
    cells: dict[str, Any] = {}
    provenance: list[Any] = []
    for facts in several:
        for name, of in facts["cells"].items():
            cells[name] = {**of, "provenance": of["provenance"] + len(provenance)}
        provenance += facts["provenance"]
    return {"schema": several[0]["schema"], "cells": cells, "provenance": provenance}
