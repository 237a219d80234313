"""Slurm's short form of node names: `rack[1-2]n[01-02],login` to its names, without scontrol."""

import re
from itertools import product
from math import prod

MOST_NODES = 100_000
"""More than any cluster has: whoever gives more made a mistake."""

# So short that int() is quick.
_NUMBER = re.compile("[0-9]{1,18}")


def expand_nodelist(text: str) -> list[str]:
    """Every name in its order, zeros before numbers kept.

    Raises ValueError on brackets that don't match, on what is no range, and on more than MOST_NODES names.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text.strip()):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [_range(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
        if len(names) + prod(map(len, choices)) > MOST_NODES:
            raise _too_many(part)
        names += ["".join(choice) for choice in product(*choices)]
    if text.count("[") != text.count("]"):
        raise ValueError(f"{text!r} is no list of nodes: its brackets don't match")
    return names


def _range(text: str) -> list[str]:
    """'08-10,12' → ['08', '09', '10', '12']."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            found.append(first)
            continue
        if not (_NUMBER.fullmatch(first) and _NUMBER.fullmatch(last)) or int(first) > int(last):
            raise ValueError(f"'[{text}]' is no range")
        if len(found) + int(last) - int(first) >= MOST_NODES:
            raise _too_many(f"[{text}]")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _too_many(part: str) -> ValueError:
    return ValueError(f"{part!r} is more than {MOST_NODES} nodes, which no cluster has")
