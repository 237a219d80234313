"""torch without the parts that a replay never uses: its compiler, and how to compute shapes without data.

DDP's constructor and every optimiser's step import `torch._dynamo` only to hear that nothing is compiled;
that import (with sympy) takes as long as all other parts of a replayed cell's start together.
`torch._meta_registrations`, which `import torch` ends with, registers kernels of the device `meta` in
Python, for a sixth of its time. Real models can't do without: torchvision imports both by itself.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class StandIn(ModuleType):
    """In a module's place; whatever is asked of it that it doesn't know is an error that says so."""

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: only what follows from not compiling is known here."""
        raise AttributeError(f"{self.__name__}.{name} is asked for, and a replay runs without that module")


def disable(function: F | None = None, recursive: bool = True, **_: Any) -> F | Callable[[F], F]:
    """The function itself: what is never compiled needs no exception from it."""
    return function if function is not None else _itself


def nothing(*_: Any, **__: Any) -> None:
    """There is no graph to break, and no cache of a compiler to clear."""


def get_optimize_ddp_mode() -> str:
    """DDP reduces by its own reducer, not by one that a compiler sees."""
    return "no_optimization"


def lean_torch() -> None:
    """Put stand-ins where imports find them, for this process and those that it forks.

    To be called before `import torch`; a module that has been imported stays.
    """
    _stand_in("torch._meta_registrations")
    if "torch._dynamo" not in sys.modules:
        utils = _stand_in("torch._dynamo.utils", get_optimize_ddp_mode=get_optimize_ddp_mode)
        rules = _stand_in("torch._dynamo.trace_rules", clear_lru_cache=nothing)
        _stand_in("torch._dynamo", disable=disable, graph_break=nothing, utils=utils, trace_rules=rules)


def _stand_in(name: str, **content: Any) -> ModuleType:
    module = StandIn(name)
    vars(module).update(content)
    return sys.modules.setdefault(name, module)


def _itself(function: F) -> F:
    return function
