"""YAML without its traps: doubled keys, endless aliases, and names that it turns into numbers or dates."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from fabricbench.errors import ConfigError

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = {"mapping": "tag:yaml.org,2002:map", "sequence": "tag:yaml.org,2002:seq"}
_MEANT_AS_BOOLEAN = re.compile("true|false", re.IGNORECASE)
_MEANT_AS_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)|[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_TRUE = re.compile("yes|on|true", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE)
_WHAT = {
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}
_DEEPEST = 50
_LONGEST_NUMBER = 400
_MOST_VALUES = 100_000


class Written(float):
    """A number that remembers how it was written: 1.10 is no other number than 1.1, but another text."""

    word: str


def read_yaml(path: Path) -> Any:
    """The content of a YAML file as plain data; None when it is empty.

    Raises ConfigError with one line per mistake, each with file and line: what can't be read, a key
    that stands twice in one mapping, and a plain word that YAML takes for something else (on, no, 010,
    12:30:00) instead of the text that was meant.
    """
    import yaml

    try:
        loader = _loader_class()(path.read_text(encoding="utf-8"))
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            if mistakes := _endless(root) or _mistakes(root, loader):
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
    except RecursionError:
        raise ConfigError(f"{path}: {_TOO_DEEP}") from None


_TOO_DEEP = f"nested more than {_DEEPEST} levels deep; write it flatter"


@cache
def _loader_class() -> Any:
    """PyYAML's safe loader, the fast one where there is one, with numbers that keep their word."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        pass

    def number(loader: Any, node: Any) -> Written:
        value = Written(loader.construct_yaml_float(node))
        value.word = node.value
        return value

    Loader.add_constructor("tag:yaml.org,2002:float", number)
    return Loader


def _endless(root: Any) -> list[tuple[int, str]]:
    """The first mistake of aliases and nesting that would make reading go on for ever, if there is one."""
    measured: dict[int, tuple[int, int]] = {}  # (values below, levels below), by node
    open_nodes: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, all_measured = waiting.pop()
        line = node.start_mark.line + 1
        if all_measured:
            inner = [measured[id(child)] for child in _children(node)]
            values = 1 + sum(count for count, _ in inner)
            levels = 1 + max((depth for _, depth in inner), default=0)
            if levels > _DEEPEST:
                return [(line, _TOO_DEEP)]
            if values > _MOST_VALUES:
                return [(line, f"more than {_MOST_VALUES} values, with those of aliases; write fewer")]
            open_nodes.remove(id(node))
            measured[id(node)] = values, levels
        elif id(node) in open_nodes:
            return [(line, "an alias below stands for this, which holds the alias; remove it there")]
        elif id(node) not in measured:
            open_nodes.add(id(node))
            waiting.append((node, True))
            waiting += [(child, False) for child in _children(node)]
    return []


def _children(node: Any) -> list[Any]:
    if node.id == "mapping":
        return [part for pair in node.value for part in pair]
    return list(node.value) if node.id == "sequence" else []


def _mistakes(root: Any, loader: Any) -> list[tuple[int, str]]:
    """(line, what is wrong) of every mistake below a YAML node, in the file's order."""
    found: dict[tuple[int, str], None] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if tagged := _tag_mistake(node, loader):
            found[tagged] = None
        elif node.id == "mapping":
            for mistake in _key_mistakes(node):
                found[mistake] = None
            waiting += [value for _, value in node.value]
        elif node.id == "sequence":
            waiting += node.value
        elif mistake_in := _misread(node):
            found[mistake_in] = None
    return sorted(found)


def _tag_mistake(node: Any, loader: Any) -> tuple[int, str] | None:
    """The mistake when a tag, as !!binary, makes something else of a value than it is without.

    `!!int "2"`, as programs write it, is what 2 is.
    """
    plain = _PLAIN.get(node.id)
    if node.id == "scalar":
        if node.tag == _TEXT:
            return None
        plain = loader.resolve(type(node), node.value, (True, False))
        if node.style and len(node.value) > _LONGEST_NUMBER:
            plain = _TEXT
    if node.tag == plain:
        return None
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    return node.start_mark.line + 1, f"tag {tag} is not for configurations; remove it"


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
        if key.tag != _TEXT and key.style:
            found.append((line, f"key {key.value!r} has a tag; remove it"))
        elif key.tag != _TEXT:
            kind = _WHAT.get(_kind(key), "a date")
            found.append((line, f'key {key.value!r} is {kind} to YAML; quote it: "{key.value}"'))
    return found


def _misread(node: Any) -> tuple[int, str] | None:
    """The mistake when YAML reads a plain word as something that its writer hardly meant."""
    kind, word = _kind(node), node.value
    if node.style or kind not in ("bool", "int", "float", "timestamp"):
        return None
    mend = f'quote it: "{word}"'
    if kind == "bool":
        if _MEANT_AS_BOOLEAN.fullmatch(word):
            return None
        mend = f"write {'true' if _TRUE.fullmatch(word) else 'false'}, or if it is a text, {mend}"
    elif kind != "timestamp":
        if _MEANT_AS_NUMBER.fullmatch(word):
            if len(word) <= _LONGEST_NUMBER:
                return None
            return (
                node.start_mark.line + 1,
                f"a number of {len(word)} digits is too long; write a smaller one",
            )
        if _NOT_FINITE.fullmatch(word):
            mend = f"write a finite number, or if it is a text, {mend}"
        elif ":" in word:
            mend = f"write a time with its unit, as 90 s, or if it is a text, {mend}"
        else:
            mend = f"write the number in plain digits, or if it is a text, {mend}"
    return node.start_mark.line + 1, f"{word!r} is {_WHAT[kind]} to YAML; {mend}"


def _kind(node: Any) -> str:
    return str(node.tag).rsplit(":", 1)[-1]
