"""A table as it is compared along a parameter of its workloads, such as the batch: as any column."""

import json
from typing import Any

import pandas as pd

from fabricbench.cell import canonical_json
from fabricbench.variants import FOLLOWS, PARAMETERS, label, text, variant_text

FOLLOWING = "follows"
"""What the parameter decided of others, as JSON: not held equal, but one thing on each side."""


def along(cells: pd.DataFrame, by: str) -> pd.DataFrame:
    """The table for a comparison along `by`, unchanged unless that is a parameter.

    Then `by` is a column: the parameter's value as text where its workload's cells differ in it, else "".
    `params`, `variant` and the label in `workload` are without it, so that they can be held equal, and what
    it decided of other parameters (a model's image size, its profile) stands in `follows` alone.
    """
    if by not in PARAMETERS:
        return cells
    if "variant" not in cells:
        return cells.assign(**{by: pd.Series("", index=cells.index, dtype="string")})
    columns = ("variant", "params", "family", "workload")
    rows = zip(*(cells[name].astype("string").fillna("") for name in columns), strict=True)
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    taken = [known[row] if row in known else known.setdefault(row, _without(by, *row)) for row in rows]
    names = (by, "variant", "params", "workload", FOLLOWING)
    found = zip(*taken, strict=True) if taken else [()] * len(names)
    return cells.assign(
        **{
            name: pd.Series(list(values), index=cells.index, dtype="string")
            for name, values in zip(names, found, strict=True)
        }
    )


def _without(by: str, variant: str, params: str, family: str, workload: str) -> tuple[str, ...]:
    """(value, variant, params, workload, what follows) of one row, without `by`."""
    varying: dict[str, Any] = json.loads(variant) if variant else {}
    if by not in varying:
        return "", variant, params, workload, ""
    held: dict[str, Any] = json.loads(params) if params else {}
    follows = {name: held.pop(name) for name in FOLLOWS.get(by, ()) if name in held and name not in varying}
    held.pop(by, None)
    value = text(varying.pop(by))
    return value, variant_text(varying), canonical_json(held), label(family, varying), canonical_json(follows)
