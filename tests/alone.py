"""Ranks for tests that need none: one process, with a store in its memory."""

import json
from typing import Any


class Together:
    """One rank of a world in which nobody else has anything to say; `told` is what rank 0 told."""

    def __init__(self, rank: int = 0, size: int = 1, told: dict[str, str] | None = None) -> None:
        """`told`: the store, shared by the ranks of a test."""
        self.rank, self.size = rank, size
        self.told = {} if told is None else told
        self.barriers = 0

    def barrier(self) -> None:
        """Nobody is waited for."""
        self.barriers += 1

    def gather(self, item: Any) -> list[Any]:
        """This rank's alone."""
        return [item]

    def share(self, item: Any) -> Any:
        """The same."""
        return item

    def tell(self, key: str, value: Any) -> None:
        """Keep it as the store would."""
        self.told[key] = json.dumps(value)

    def hear(self, key: str) -> Any:
        """What rank 0 told; KeyError where it told nothing."""
        return json.loads(self.told[key])

    def library(self) -> dict[str, str]:
        """None."""
        return {}
