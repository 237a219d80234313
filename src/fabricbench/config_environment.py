"""The variables of a configuration: whose they are, and whether a fabric can fill their tokens."""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from itertools import product

from fabricbench.campaign import Backend, Campaign, Fabric, Workload
from fabricbench.fabrics.selection import TOKENS, plugin_clash, why_unfilled
from fabricbench.launch.base import THREAD_COUNTS

Mistake = Callable[[str, str], None]
Level = tuple[str, Mapping[str, str | None]]

_OURS = ("FABRICBENCH_", "PMI_", "PMIX_")
_MCA = "PMIX_MCA_"
"""Parameters of Open MPI's PMIx, which are the user's."""
_BRACES = re.compile(r"\{(\w+)(?::(\w+))?\}")
_CLOSE = 0.7
"""How much alike a word in braces and a token are, from 0 to 1, for the word to be a slip."""


def check_variables(campaign: Campaign, mistake: Mistake) -> None:
    """Tell the mistakes in single variables of every environment."""
    for path, variables in _levels(campaign):
        for name, value in variables.items():
            if text := _why_not_set(name) or _bad_token(value or ""):
                mistake(f"{path}.{name}", text)


def check_cells(campaign: Campaign, mistake: Mistake) -> None:
    """Tell the mistakes in what the environments are together, for each workload, fabric and backend."""
    for workload in campaign.workloads.values():
        for fabric, backend in product(workload.fabrics, workload.backends):
            _check_cell(campaign, workload, campaign.fabrics[fabric], campaign.backends[backend], mistake)


def _levels(campaign: Campaign) -> Iterator[Level]:
    """(path, variables) of every environment."""
    yield "environment", campaign.environment
    parts: dict[str, Mapping[str, Fabric | Backend | Workload]] = {
        "fabrics": {**campaign.fabrics},
        "backends": {**campaign.backends},
        "workloads": {**campaign.workloads},
    }
    for key, named in parts.items():
        for name, part in named.items():
            yield f"{key}.{name}.environment", part.environment


def _why_not_set(name: str) -> str | None:
    """Why a variable isn't for a configuration to set."""
    if name in THREAD_COUNTS:
        return "set from the workload's threads_per_rank; write that instead"
    if name == "PYTHONHOME":
        return "ranks run by this tool's own Python; remove it"
    if name.startswith(_OURS) and not name.startswith(_MCA):
        return "set by whoever starts the ranks; remove it"
    return None


def _bad_token(value: str) -> str | None:
    """The mistake when a word in braces was hardly meant to be passed on as it stands."""
    for braces in _BRACES.finditer(value):
        word, suffix = braces.groups()
        known = sorted({token.partition(":")[0] for token in TOKENS})
        if word in known and (suffix in (None, "port") or suffix.isdigit()):
            continue
        if get_close_matches(word.lower(), known, n=1, cutoff=_CLOSE):
            whole = braces[0][1:-1]
            best = get_close_matches(whole.lower(), TOKENS, n=1, cutoff=0)[0]
            return f"{braces[0]} is no token; did you mean {{{best}}}?"
    return None


def _check_cell(
    campaign: Campaign, workload: Workload, fabric: Fabric, backend: Backend, mistake: Mistake
) -> None:
    """Whether the variables of one workload on one fabric and backend go together."""
    given: dict[str, tuple[str, str | None]] = {}
    for path, variables in (
        ("environment", campaign.environment),
        (f"fabrics.{fabric.name}.environment", fabric.environment),
        (f"backends.{backend.name}.environment", backend.environment),
        (f"workloads.{workload.name}.environment", workload.environment),
    ):
        given |= {name: (f"{path}.{name}", value) for name, value in variables.items()}
    for path, value in given.values():
        if reason := why_unfilled(value or "", fabric.definition):
            mistake(path, f"fabric {fabric.name}: {reason}")
    way = {"engine": backend.engine, **backend.options}
    values = {name: value for name, (_, value) in given.items()}
    if reason := plugin_clash(fabric.definition, way, values):
        mistake(given["NCCL_NET_PLUGIN"][0], f"fabric {fabric.name}: {reason}")
