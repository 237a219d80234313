"""What no value of a configuration may be, wherever it stands."""

import math
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from fabricbench.config_schema import in_yaml, shown

_LARGEST = 2**63 - 1
_TEXTS = ("environment", "source")
"""Keys below which a text may have lines and tabs, and a number any length: they are passed on as text."""


def value_mistakes(value: Any, path: str = "", in_text: bool = False) -> list[str]:
    """A line per key that isn't text (as YAML makes of on, no, 010), control character and absurd number."""
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _entry(key, item, path, in_text)]
    if isinstance(value, list | tuple):
        return [
            line
            for index, item in enumerate(value)
            for line in value_mistakes(item, _below(path, str(index)), in_text)
        ]
    allowed = "\t\n" if in_text else ""
    if isinstance(value, str) and (bad := _control(value, allowed)):
        return [f"config: {path}: {shown(value)} holds the control character {bad!r}; remove it"]
    if isinstance(value, float) and not math.isfinite(value):
        return [f"config: {path}: {shown(value)} is not a finite number; write one"]
    if isinstance(value, int | float) and abs(value) > _LARGEST and not in_text:
        return [f"config: {path}: {shown(value)} is too large; write a smaller number"]
    return []


def environment_mistakes(raw: Mapping[str, Any]) -> list[str]:
    """A line per variable whose value is a broken number: 1.10, as text, isn't known any more."""
    return [
        f'config: {path}.{name}: {shown(value)} is not text or a whole number; quote it: "{in_yaml(value)}"'
        for path, variables in _environments(raw)
        for name, value in variables.items()
        if isinstance(value, float)
    ]


def _entry(key: Any, item: Any, path: str, in_text: bool) -> list[str]:
    if not isinstance(key, str):
        return [
            f"config: {path or 'top level'}: key {in_yaml(key)} is not text; quote the name in the YAML file"
        ]
    if bad := _control(key, ""):
        return [
            f"config: {path or 'top level'}: key {shown(key)} holds the control character {bad!r}; remove it"
        ]
    below = _below(path, key)
    return value_mistakes(item, below, in_text or key in _TEXTS)


def _environments(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, variables) of every environment that has the form of one."""
    parts = [("", raw)]
    for key in ("fabrics", "backends", "workloads"):
        if isinstance(named := raw.get(key), Mapping):
            parts += [(f"{key}.{name}", part) for name, part in named.items() if isinstance(part, Mapping)]
    for path, part in parts:
        if isinstance(variables := part.get("environment"), Mapping):
            yield _below(path, "environment"), variables


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _control(text: str, allowed: str) -> str | None:
    """The first control character (or half of a character) in a text."""
    return next((c for c in text if c not in allowed and unicodedata.category(c) in ("Cc", "Cs")), None)
