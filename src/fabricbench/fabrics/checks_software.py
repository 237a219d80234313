"""Whether the libraries on the nodes are those that the config's backends need."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabricbench.fabrics.findings import Finding, Nodes, Wanted
from fabricbench.mpi_library import is_mpi, which_mpi

_UCX_ALIASES = ("all", "sm", "shm", "self", "cuda", "rocm", "mm", "ib")


def check_software(want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """Whether the libraries that the cells need are there, and are the right ones."""
    for name, node in nodes.items():
        if node.software is not None:
            yield from _mpi(name, node.software, want)
            yield from _torch(name, node.software, want)
            yield from _providers(name, node.software, want)
            yield from _transports(name, node.software, want)


def _mpi(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    mpi = software["mpi"]
    used = any(map(is_mpi, want.engines))
    if mpi.get("error"):
        text = f"mpi4py loads no MPI library: {mpi['error']}"
        level = "problem" if used else "note"
        mend = "load the cluster's MPI module, or pip install mpich"
        yield Finding("MPI library", (name,), level, text, mend)
        return
    loaded = which_mpi(mpi["version"])
    first = " ".join(mpi["version"].split("\n")[0].split())
    libraries = {use.backend.get("library") or "mpich" for use in want.uses if is_mpi(use.backend["engine"])}
    wrong = sorted(libraries - {loaded})
    if wrong:
        backends = sorted(
            {
                use.backend["name"]
                for use in want.uses
                if is_mpi(use.backend["engine"]) and (use.backend.get("library") or "mpich") in wrong
            }
        )
        text = f"mpi4py loads {first}; backend {', '.join(backends)} says {', '.join(wrong)}"
        if loaded and len(libraries) == 1:
            mend = f"set backends.{backends[0]}.library: {loaded}"
        else:
            mend = f"load the module of {wrong[0]}, with an mpi4py that was built for it"
        yield Finding("MPI library", (name,), "problem", text, mend)
    else:
        yield Finding("MPI library", (name,), "ok", f"mpi4py loads {first}")


def _torch(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    torch = software["torch"]
    needed = want.engines & {"nccl", "gloo"}
    if torch.get("error"):
        level = "problem" if needed else "note"
        text = f"torch can't be imported: {torch['error']}"
        yield Finding("torch", (name,), level, text, "set the project up again: make setup")
        return
    lacking = sorted(engine for engine in needed if not torch[engine])
    if lacking:
        text = f"torch {torch['version']} has no {' and no '.join(lacking)}"
        mend = "install torch's full build: make setup, without TORCH_INDEX"
        yield Finding("torch", (name,), "problem", text, mend)
    else:
        has = [engine for engine in ("gloo", "nccl") if torch[engine]]
        yield Finding("torch", (name,), "ok", f"torch {torch['version']} has {', '.join(has)}")


def _providers(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    """Whether libfabric has each provider that the cells name."""
    own = ("mpich", "intel-mpi")  # these bring a libfabric of their own, which fi_info needn't know
    needed: dict[str, bool] = {}
    for use in want.uses:
        value = use.environment.get("FI_PROVIDER") or ""
        sure = not is_mpi(use.backend["engine"]) or (use.backend.get("library") or "mpich") not in own
        for word in [] if value.startswith("^") else filter(None, re.split(r"[;,+]", value)):
            needed[word] = needed.get(word, False) or sure
    found = software["providers"]
    if found is not None:
        found = list(dict.fromkeys(word for each in found for word in each.split(";")))
    yield from _found_by(name, "libfabric", "fi_info", "provider", needed, found)


def _transports(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    """Whether UCX has each transport that the cells name."""
    values = [use.environment.get("UCX_TLS") or "" for use in want.uses]
    words = {word for value in values if not value.startswith("^") for word in value.split(",") if word}
    needed = {word: True for word in words if not word.startswith(_UCX_ALIASES)}
    yield from _found_by(name, "UCX", "ucx_info", "transport", needed, software["transports"])


def _found_by(
    name: str, library: str, tool: str, what: str, needed: Mapping[str, bool], found: Sequence[str] | None
) -> Iterator[Finding]:
    """What a library's own tool finds of what is needed; True in `needed`: the tool's word is final."""
    if not needed:
        return
    asked = ", ".join(sorted(needed))
    lacking = sorted(word for word in needed if not any(each.startswith(word) for each in found or ()))
    if found is None:
        text = f"{tool} isn't on PATH: whether {library} has {what} {asked} shows when a cell runs"
        yield Finding(library, (name,), "note", text, f"put {tool} of the {library} in use on PATH")
    elif lacking:
        text = f"{tool} finds no {what} {', '.join(lacking)}; it has: {', '.join(found) or 'none'}"
        mend = f"load the {library} that the cluster provides, or name another {what}"
        level = "problem" if any(needed[word] for word in lacking) else "warning"
        yield Finding(library, (name,), level, text, mend)
    else:
        yield Finding(library, (name,), "ok", f"{what} {asked} found by {tool}")
