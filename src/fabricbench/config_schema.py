"""The configuration's schema at work: mistakes as lines that name key, value and mend, and defaults."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fabricbench.strict_yaml import Written, read_yaml

SCHEMA_PATH = Path(__file__).resolve().parents[2] / "workflow" / "schemas" / "config.schema.yaml"

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of keys to values",
}
_LIMITS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be above {}",
    "minItems": "must have at least {} values",
    "maxItems": "must have at most {} values",
    "minProperties": "must have at least {} key",
    "minLength": "must have at least {} character",
}


@cache
def schema() -> dict[str, Any]:
    """The schema as plain data; raises ConfigError when the file can't be read."""
    content: dict[str, Any] = read_yaml(SCHEMA_PATH)
    return content


def schema_mistakes(raw: dict[str, Any]) -> list[str]:
    """One line per place where a configuration (plain dicts and lists) breaks the schema, sorted by key."""
    lines = {line: None for error in _validator().iter_errors(raw) for line in _lines(error)}
    return sorted(lines)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema())


def with_defaults(value: Any, part: Mapping[str, Any] | None = None) -> Any:
    """A copy of a valid configuration with every default filled in.

    `part` is the part of the schema that describes `value`; by default the whole.
    """
    part = _resolved(schema() if part is None else part)
    if isinstance(value, list):
        return [with_defaults(item, part.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    keys = properties(part, value)
    others = part.get("additionalProperties") or {}
    filled = {key: with_defaults(item, keys.get(key, others)) for key, item in value.items()}
    for key, description in keys.items():
        if key not in value and "default" in description:
            filled[key] = with_defaults(description["default"], description)
    return filled


def properties(part: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that a part of the schema describes for `value`: its own, and those that its `kind` adds."""
    found = dict(part.get("properties", {}))
    for branch in part.get("allOf", []):
        if branch["if"]["properties"]["kind"]["const"] == value.get("kind"):
            found |= _resolved(branch["then"])["properties"]
    return found


def did_you_mean(word: Any, known: Any) -> str:
    """The mend for a wrong word: the closest known one, or all of them."""
    from difflib import get_close_matches

    words = [str(item) for item in known]
    close = get_close_matches(str(word), words, n=5)
    if close:
        # Swapped letters are the most frequent slip, and rank no higher than others there.
        best = max(close, key=lambda candidate: sorted(candidate) == sorted(str(word)))
        return f"did you mean {best!r}?"
    return f"known: {', '.join(words)}" if words else "there are none"


def shown(value: Any) -> str:
    """A value in one short line."""
    text = _as_written(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def in_yaml(value: Any) -> str:
    """A single value as YAML writes it: null, true, and numbers as they were written."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return value.word if isinstance(value, Written) else str(value)


def _as_written(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_as_written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_as_written, value))}]"
    return repr(value) if isinstance(value, str | bytes) else in_yaml(value)


def _resolved(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of the schema with its `$ref` (always into $defs) replaced by what it points to."""
    target = schema()["$defs"][part["$ref"].rsplit("/", 1)[-1]] if "$ref" in part else {}
    return {**target, **part}


def _lines(error: Any) -> Iterator[str]:
    """The lines for one error of jsonschema."""
    path = ".".join(str(step) for step in error.absolute_path)
    rule, value, expected = error.validator, error.instance, error.validator_value
    where = f"config: {path}: {shown(value)}" if path else f"config: {shown(value)}"
    if "propertyNames" in error.schema_path:
        yield f"config: {_join(path, str(value))}: not a usable name; {_form(error)}"
    elif rule in ("additionalProperties", "unevaluatedProperties"):
        yield from _unknown_keys(error, path)
    elif rule == "required":
        for key in expected:
            if key not in value:
                yield f"config: {_join(path, key)}: missing{_description(error, value, key)}"
    elif rule == "type":
        yield f"{where} is not {_type_words(expected)}; {_type_mend(value, expected)}"
    elif rule == "enum":
        yield f"{where} is not known; {did_you_mean(value, [item for item in expected if item is not None])}"
    elif rule in ("pattern", "maxLength"):
        yield f"{where} is not a usable name; {_form(error)}"
    elif rule == "uniqueItems":
        yield f"{where} has a value twice; write each once"
    elif rule in _LIMITS:
        yield f"{where} {_LIMITS[rule].format(expected)}"
    else:
        yield f"config: {path}: {error.message.splitlines()[0]}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _unknown_keys(error: Any, path: str) -> Iterator[str]:
    """A line per key that the schema doesn't know (none while a workload's kind is wrong itself)."""
    part = _resolved(error.schema)
    if "allOf" in part and error.instance.get("kind") not in part["properties"]["kind"]["enum"]:
        return
    known = properties(part, error.instance)
    for key in error.instance:
        if key not in known:
            yield f"config: {_join(path, key)}: unknown key; {did_you_mean(key, known)}"


def _description(error: Any, value: Mapping[str, Any], key: str) -> str:
    """The description of a missing key, as a mend."""
    part = _resolved(error.schema)
    text = properties(part, value).get(key, {}).get("description", "")
    if not text and key == "profile":
        text = "device replay needs how fast one GPU is: {images_per_s, batch, source}"
    return f"; {text}" if text else "; add it"


def _type_words(types: str | list[str]) -> str:
    names = [types] if isinstance(types, str) else types
    return " or ".join(_TYPES[name] for name in names if name != "null")


def _type_mend(value: Any, types: str | list[str]) -> str:
    if value is None:
        return "give it a value, or leave the key out"
    if "string" in types and not isinstance(value, dict | list):
        return f'quote it: "{in_yaml(value)}"'
    if "string" in types and "array" not in types and isinstance(value, list):
        inner = f": {shown(value[0])}" if len(value) == 1 else ""
        return f"write one value, without the list{inner}"
    if "string" in types and "object" not in types and isinstance(value, dict):
        return "write one value, without keys below it"
    scalar = {"integer", "number", "boolean"} & set([types] if isinstance(types, str) else types)
    if "array" in types and not scalar and not isinstance(value, dict):
        return f"write [{in_yaml(value)}]"
    if isinstance(value, str) and ("integer" in types or "number" in types):
        return "write it without quotes or unit"
    if "integer" in types:
        return "write a whole number"
    if "boolean" in types:
        return "write true or false, without quotes"
    return "mend its indentation or form"


def _form(error: Any) -> str:
    if error.validator == "maxLength":
        return f"use at most {error.validator_value} characters"
    if error.validator == "pattern" and error.validator_value.startswith("^[A-Za-z_]"):
        return "a variable's name has letters, digits and underline only"
    return "use letters, digits, '.', '-' and '_', with a letter or digit first"
