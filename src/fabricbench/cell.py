"""The cell: one point of the grid, holding all that can change its measurement and nothing else.

Canonical JSON of a cell plus the code key of what it runs give a digest; the digest stands in the
record's path. So a changed cell is another file, and a cell that was changed back is found again.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabricbench.cores import cores_per_rank

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement, fully resolved.

    Time-outs, paths, prices and report settings are deliberately absent: they say how a cell is run
    or shown, not what is measured.
    """

    workload: str
    """The workload's name in the config."""
    kind: str
    """What the workload is: a folder of `fabricbench.workloads` (train, cfd, micro)."""
    params: Json
    """The workload's parameters with every default filled in."""
    fabric: Json
    """Resolved definition: name, kind, interface and adapter (lists of the names that they may have),
    subnet, port, provider, ports_per_node, rate_bit_s (of one port of the real fabric),
    effective_bit_s (what its transport reached of that; null for all of it), link_bit_s (as shaped here:
    that divided by both scales), delay_s and jitter_s (as shaped here: the real ones
    multiplied by the time scale), loss (a share)."""
    backend: Json
    """name and engine (gloo, mpi, …), and those options that apply: library, transport, buffers, launch (how
    Slurm starts MPI), gpudirect, algorithm, protocol, channels."""
    environment: Mapping[str, str]
    """The variables that select this fabric for this engine, and those the user adds; tokens such as
    `{interface}` stand for what only the node knows."""
    unset: Sequence[str] = field(default_factory=list)
    """Variables that the user took out: neither the table's nor an inherited value is in force."""
    launcher: str
    """Who starts the ranks: emulated, host, slurm or allocation."""
    binding: Json
    """cpu, memory and near: how ranks are bound to cores, and near what."""
    gpus: int
    """Devices, which is also ranks."""
    nodes: int
    ranks_per_node: int
    threads_per_rank: int
    device: str
    """cuda or cpu (real compute), or replay (compute replaced by waits that a profile gives)."""
    scale: Json
    """{bytes: S, time: D}: bytes are divided by S, times multiplied by D; both 1 if nothing is scaled."""
    repeat: int
    """1, 2, …: the block this measurement belongs to."""
    site: Json = field(default_factory=dict)
    """Where Slurm puts the ranks: placement (packed or spread), cpus_per_rank, exclusive, and those of
    modules, container, partition, constraint, gpu_type and switches that are given; empty without Slurm."""

    @property
    def placement(self) -> str:
        """packed or spread; empty without Slurm."""
        return str(self.site.get("placement", ""))

    @property
    def cpus_per_rank(self) -> int:
        """Cores that Slurm gives to each rank: the config's, or those of its threads and its engine's."""
        given = self.site.get("cpus_per_rank")
        return int(given or cores_per_rank(self.threads_per_rank, self.backend["engine"], self.kind))

    @property
    def slug(self) -> str:
        """A readable name: fabric, backend, GPUs, placement if it is spread, and repeat."""
        spread = "-spread" if self.placement == "spread" else ""
        return f"{self.fabric['name']}-{self.backend['name']}-{self.gpus}{spread}-r{self.repeat}"

    @property
    def demonstration(self) -> bool:
        """Real compute on scaled links is no model of anything; such a cell gets no verdict."""
        scaled = self.scale["bytes"] * self.scale["time"] != 1
        return scaled and self.kind != "micro" and self.device != "replay"

    def canonical(self) -> str:
        """The cell as canonical JSON: sorted keys, no blanks, the same text for the same meaning."""
        return canonical_json(vars(self))

    @classmethod
    def from_json(cls, text: str | Json) -> "Cell":
        """The inverse of `canonical`; raises TypeError on a field that no cell has."""
        return cls(**(json.loads(text) if isinstance(text, str) else text))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no blanks; NaN is refused (ValueError), since no two NaN are equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def digest8(cell: Cell, code_key: str) -> str:
    """Eight hex digits for a cell and the code it runs; told apart only within one slug."""
    return hashlib.sha256(f"{cell.canonical()}\n{code_key}".encode()).hexdigest()[:8]


def cell_id(cell: Cell, code_key: str) -> str:
    """`<workload>/<slug>-<digest8>`: the record's path below results/<campaign>/, without its ending."""
    return f"{cell.workload}/{cell.slug}-{digest8(cell, code_key)}"
