"""What the libraries' own logs say of the network they took: which of their lines count."""

import re
from collections.abc import Iterable

TELLING = re.compile(
    # NCCL
    r"NET/[\w ]+ *: *Using .*|Using network .*|via NET/\S+|NCCL version .*|GPU Direct RDMA .*"
    # MPICH, Cray MPICH and Intel MPI
    r"|libfabric provider: .*|num_nics: .*|(?:libfabric|Libfabric) .*(?:provider|domain).*"
    r"|.*OFI.* (?:provider|NIC).*"
    # libfabric, UCX, Open MPI and PSM2
    r"|Using provider .*|Opened fabric: .*|\w+ inter-node cfg.*|.*ucp_context_\d+ .*cfg.*"
    r"|select: component \w+ selected|mtl:ofi: .*|.*PSM2.*(?:version|HFI).*"
)
SAME = re.compile(r"\d+\[\w+\]|Channel \d+/\d+|0x[0-9a-f]+|\S+:\d+:\d+")
"""What differs by rank alone: its host and process, its number, a channel's."""
FAILING = re.compile(r"^\w+\(\d+\)\.*:|\b(?:ERROR|Error|error:|Fatal|FATAL|Abort|failed)\b")
"""A frame of MPICH's error stack, or a word that libraries put before what went wrong."""
MOST_LINES, LONGEST = 40, 300


def telling(lines: Iterable[str]) -> list[str]:
    """The lines that name a network, provider or adapter: each once, in order, at most MOST_LINES."""
    found: dict[str, str] = {}
    for line in lines:
        if (match := TELLING.search(line)) and len(found) < MOST_LINES:
            text = match.group().strip()[:LONGEST]
            found.setdefault(SAME.sub("", text), text)
    return list(found.values())


def cause(lines: Iterable[str]) -> list[str]:
    """The last line of an MPI error stack, or another that speaks of an error; empty for none."""
    found = [line.strip() for line in lines if FAILING.search(line)]
    return [re.sub(r"^\S+\(\d+\)\.*: *", "", found[-1])[:LONGEST]] if found else []
