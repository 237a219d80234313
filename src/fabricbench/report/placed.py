"""Placement on the page: a spread cell's backend is shown as `mpi, spread`, a row of its own."""

from dataclasses import replace

import pandas as pd

from fabricbench.analysis.names import way
from fabricbench.analysis.table import Tables


def placed(tables: Tables) -> Tables:
    """Tables whose backends are named so, as far as any cell is spread; for showing, not for computing on."""
    cells = tables.cells
    if "placement" not in cells or not (cells["placement"] == "spread").any():
        return tables
    found = tables.conclusions
    parts = {
        name: _named(getattr(found, name)) for name in ("comparisons", "sizes", "controls", "thresholds")
    }
    return replace(tables, cells=_named(cells), conclusions=replace(found, **parts))


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    if frame.empty or not {"backend", "placement"} <= set(frame.columns):
        return frame
    pairs = zip(frame["backend"], frame["placement"].astype("string").fillna(""), strict=True)
    names = [name if pd.isna(name) else way(name, where) for name, where in pairs]
    return frame.assign(backend=pd.Series(names, index=frame.index, dtype=frame["backend"].dtype))
