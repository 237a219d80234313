"""Slurm's short form of node names: `rack[1-2]n[01-02],login` to its names, without scontrol."""

import re
from itertools import product


def expand_nodelist(text: str) -> list[str]:
    """Every name in its order, zeros before numbers kept; raises ValueError on brackets that don't match."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text.strip()):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [_range(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
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
        else:
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found
