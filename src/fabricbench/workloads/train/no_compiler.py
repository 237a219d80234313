"""Training without torch's compiler: what DDP and optimisers ask of `torch._dynamo`, answered without it.

DDP's constructor and every optimiser's step import `torch._dynamo` only to hear that nothing is compiled.
That import (with sympy) takes as long as all other parts of a replayed cell's start together. Real models
can't do without it: torchvision imports it by itself.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

NAME = "torch._dynamo"

F = TypeVar("F", bound=Callable[..., Any])


class StandIn(ModuleType):
    """In `torch._dynamo`'s place; whatever else is asked of it is an error that says so."""

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: only what follows from not compiling is known here."""
        raise AttributeError(
            f"{self.__name__}.{name} is asked for, and this process replays without torch's compiler"
        )


def disable(function: F | None = None, recursive: bool = True, **_: Any) -> F | Callable[[F], F]:
    """The function itself: what is never compiled needs no exception from it."""
    return function if function is not None else _itself


def nothing(*_: Any, **__: Any) -> None:
    """There is no graph to break, and no cache of a compiler to clear."""


def get_optimize_ddp_mode() -> str:
    """DDP reduces by its own reducer, not by one that a compiler sees."""
    return "no_optimization"


def do_without() -> None:
    """Put the stand-in where `import torch._dynamo` finds it, unless the real one has been imported.

    For this process and those that it forks; to be called after `import torch`.
    """
    if NAME in sys.modules:
        return
    utils = _module("utils", get_optimize_ddp_mode=get_optimize_ddp_mode)
    rules = _module("trace_rules", clear_lru_cache=nothing)
    module = _module("", disable=disable, graph_break=nothing, utils=utils, trace_rules=rules)
    vars(sys.modules["torch"])["_dynamo"] = module


def _module(name: str, **content: Any) -> StandIn:
    """A stand-in for `torch._dynamo` or a module in it, with this content, where imports find it."""
    module = StandIn(f"{NAME}.{name}".removesuffix("."))
    vars(module).update(content)
    sys.modules[module.__name__] = module
    return module


def _itself(function: F) -> F:
    return function
