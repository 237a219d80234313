"""Whether a cell's environment modules are loaded: a `module load` that fails stops nothing by itself."""

import re
from collections.abc import Iterable, Mapping

_LOADED = "LOADEDMODULES"
"""Kept by Environment Modules and by Lmod."""
_ALIASES = "__MODULES_LMALTNAME"
"""Other names of what is loaded, by Environment Modules."""


def loaded_modules(environment: Mapping[str, str]) -> list[str]:
    """The modules that this shell has loaded, in the order in which they were."""
    return [name for name in environment.get(_LOADED, "").split(":") if name]


def why_not_loaded(asked: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """The line that names modules which aren't loaded, with its mend; None where all are.

    `gcc` and `gcc/13` are both there as gcc/13.2: a site's defaults and aliases choose versions.
    """
    loaded = loaded_modules(environment)
    words = set(re.split(r"[:&|]", environment.get(_ALIASES, ""))) | set(loaded)
    names = {word for name in words for word in (name, name.rpartition("/")[0], name.partition("/")[0])}
    missing = [module for module in asked if not {module, module.partition("/")[0]} & names]
    if not missing:
        return None
    there = f"loaded are {', '.join(loaded)}" if loaded else "none is loaded"
    return (
        f"cluster.modules: {', '.join(missing)}: not loaded on this node, where {there}; see that "
        f"`module load {missing[0]}` works there, in the shell that calls Snakemake too, and that the "
        "profile has software-deployment-method: [env-modules]"
    )
