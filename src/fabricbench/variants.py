"""Parameters that may be lists: each value makes cells of its own, told apart by their parameters alone.

Pure functions over plain data. Which parameters these are, what a workload's cells are called where it has
several variants, and what one parameter decides of another.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fabricbench import profiles
from fabricbench.cell import Cell

Params = Mapping[str, Any]
Values = tuple[tuple[str, Any], ...]

AXES: Mapping[str, tuple[str, ...]] = {
    "train": (
        *("model", "batch", "image_size", "precision", "channels_last", "compile"),
        *("bucket_mb", "first_bucket_mb", "bucket_view", "static_graph", "broadcast_buffers"),
    ),
    "cfd": (),
    "micro": (),
}
"""By kind of workload, the parameters that may be lists, in the order in which a label names them."""
PARAMETERS = tuple(dict.fromkeys(name for names in AXES.values() for name in names))
"""All of them; a comparison may be drawn along each."""
FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "model": ("image_size", "profile"),
    "batch": ("profile",),
    "precision": ("profile",),
}
"""What a parameter may decide of others that weren't chosen themselves (`resolve`)."""
_UNITS = {"image_size": "px", "bucket_mb": "MiB buckets"}
_SWITCHES = {
    "channels_last": ("channels last", "channels first"),
    "compile": ("compiled", "not compiled"),
    "bucket_view": ("bucket views", "no bucket views"),
    "static_graph": ("static graph", "dynamic graph"),
    "broadcast_buffers": ("buffers broadcast", "buffers kept"),
}


def combinations(kind: str, params: Params) -> list[dict[str, Any]]:
    """Parameters with one value each, for every choice from those that are lists; equal ones count once.

    The last axis varies first. Other parameters may be lists without being an axis; they stay as they are.
    """
    names = [name for name in AXES[kind] if isinstance(params.get(name), list)]
    values = [list(dict.fromkeys(params[name])) for name in names]
    return [{**params, **dict(zip(names, chosen, strict=True))} for chosen in product(*values)]


def resolve(params: Params) -> dict[str, Any]:
    """One combination as its cells have it: what depends on several of its values is looked up here.

    Raises ValueError, which says what is wrong with `profile` and how to mend it.
    """
    if not isinstance(params.get("profile"), str):
        return dict(params)
    asked = (params["model"], params["batch"], params["image_size"], params.get("precision", "fp32"))
    return {**params, "profile": profiles.resolve(params["profile"], *asked)}


def axis_values(kind: str, params: Params) -> Values:
    """(name, value) of every parameter that may be a list, in order, of one combination."""
    return tuple((name, params[name]) for name in AXES.get(kind, ()) if name in params)


def text(value: Any) -> str:
    """A value as a configuration writes it: 64, 0.5, true, fp32."""
    return value if isinstance(value, str) else json.dumps(value)


def words(name: str, value: Any) -> str:
    """A value in short words, without its parameter's name where none is needed: `batch 32`, `bf16`."""
    if name in _SWITCHES and isinstance(value, bool):
        return _SWITCHES[name][0 if value else 1]
    if name in ("model", "precision"):
        return text(value)
    if name in _UNITS:
        return f"{text(value)} {_UNITS[name]}"
    return f"first bucket {text(value)} MiB" if name == "first_bucket_mb" else f"{name} {text(value)}"


def side(by: str, value: str) -> str:
    """One side of a comparison along `by`, in words: `batch 64`; a fabric's, or any other's, is its name."""
    if by in _SWITCHES and value in ("true", "false"):
        return words(by, value == "true")
    return words(by, value) if by in PARAMETERS else value


def label(workload: str, variant: Mapping[str, Any]) -> str:
    """What cells of a variant are called: `vgg16, batch 32, bf16`."""
    return ", ".join([workload, *(words(name, value) for name, value in variant.items())])


@dataclass(frozen=True)
class Labels:
    """What the cells of workloads with several variants are called, by what varies among them."""

    varying: Mapping[str, tuple[str, ...]]
    """By workload, the parameters in which its cells differ, in the order of AXES."""
    _known: dict[tuple[Any, ...], tuple[str, str]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> "Labels":
        """From all cells that are shown together.

        The image size is left out where the model alone decides it.
        """
        seen: dict[str, dict[tuple[Any, ...], None]] = {}
        kinds: dict[str, dict[str, None]] = {}
        for cell in cells:
            if names := AXES.get(cell.kind):
                kinds.setdefault(cell.workload, {})[cell.kind] = None
                values = tuple(map(cell.params.get, names))
                seen.setdefault(cell.workload, {})[(cell.kind, values)] = None
        varying = {}
        for workload, found in seen.items():
            names = tuple(dict.fromkeys(name for kind in kinds[workload] for name in AXES[kind]))
            rows = [dict(zip(AXES[kind], values, strict=True)) for kind, values in found]
            varying[workload] = _varying(names, rows) if len(rows) > 1 else ()
        return cls(varying)

    def label(self, cell: Cell) -> str:
        """`vgg16, batch 32, bf16`; the workload's own name where nothing varies."""
        return self._of(cell)[0]

    def variant(self, cell: Cell) -> str:
        """The values of what varies, as canonical JSON but in the order of the label; "" if nothing does."""
        return self._of(cell)[1]

    def _of(self, cell: Cell) -> tuple[str, str]:
        names = self.varying.get(cell.workload)
        if not names:
            return cell.workload, ""
        key = (cell.workload, *map(cell.params.get, names))
        if key not in self._known:
            variant = {name: cell.params[name] for name in names if name in cell.params}
            self._known[key] = (label(cell.workload, variant), variant_text(variant))
        return self._known[key]


def variant_text(variant: Mapping[str, Any]) -> str:
    """A variant as JSON without blanks, in the order in which a label names it."""
    return json.dumps(variant, separators=(",", ":"), ensure_ascii=False) if variant else ""


def _varying(names: tuple[str, ...], rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """The names whose values differ among rows."""
    found = [name for name in names if len({row.get(name) for row in rows}) > 1]
    if "model" in found and "image_size" in found:
        pairs = {(row.get("model"), row.get("image_size")) for row in rows}
        if len(pairs) == len({model for model, _ in pairs}):
            found.remove("image_size")
    return tuple(found)
