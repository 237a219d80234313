"""YAML without its traps: doubled keys, and names that it turns into numbers, booleans or dates."""

import re
from pathlib import Path
from typing import Any

from fabricbench.errors import ConfigError

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_BOOLEAN = "tag:yaml.org,2002:bool"
_MEANT_AS_BOOLEAN = re.compile("true|false", re.IGNORECASE)
_MEANT_AS_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)|[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WHAT = {
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}


def read_yaml(path: Path) -> Any:
    """The content of a YAML file as plain data; None when it is empty.

    Raises ConfigError with one line per mistake, each with file and line: what can't be read, a key
    that stands twice in one mapping, and a plain word that YAML takes for something else (on, no, 010,
    12:30:00) instead of the text that was meant.
    """
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(path.read_text(encoding="utf-8"))
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            if mistakes := _mistakes(root):
                raise ConfigError("\n".join(f"{path}:{line}: {text}" for line, text in mistakes))
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None


def _mistakes(root: Any) -> list[tuple[int, str]]:
    """(line, what is wrong) of every mistake below a YAML node, in the file's order."""
    found: dict[tuple[int, str], None] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if node.id == "mapping":
            for mistake in _key_mistakes(node):
                found[mistake] = None
            waiting += [value for _, value in node.value]
        elif node.id == "sequence":
            waiting += node.value
        elif mistake_in := _misread(node, is_key=False):
            found[mistake_in] = None
    return sorted(found)


def _key_mistakes(mapping: Any) -> list[tuple[int, str]]:
    """Keys of one mapping that stand twice or aren't texts."""
    found = []
    first: dict[str, int] = {}
    for key, _ in mapping.value:
        line = key.start_mark.line + 1
        if key.id != "scalar":
            found.append((line, "a key must be a plain name"))
            continue
        if key.tag == _MERGE:
            continue
        if key.value in first:
            found.append((line, f"key {key.value!r} stands twice (also in line {first[key.value]})"))
        first.setdefault(key.value, line)
        if mistake := _misread(key, is_key=True):
            found.append(mistake)
    return found


def _misread(node: Any, is_key: bool) -> tuple[int, str] | None:
    """The mistake when YAML reads a plain word as something that its writer hardly meant."""
    if node.style or node.tag == _TEXT:
        return None
    kind = node.tag.rsplit(":", 1)[-1]
    if not is_key:
        if kind not in ("bool", "int", "float", "timestamp"):
            return None
        meant = _MEANT_AS_BOOLEAN if node.tag == _BOOLEAN else _MEANT_AS_NUMBER
        if kind != "timestamp" and meant.fullmatch(node.value):
            return None
    name = f"key {node.value!r}" if is_key else repr(node.value)
    return (
        node.start_mark.line + 1,
        f'{name} is {_WHAT.get(kind, "a date")} to YAML; quote it: "{node.value}"',
    )
