"""What a cluster shall be: plain data, as text too, so that it can be handed to the process that makes it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fabricbench.errors import LaunchError
from fabricbench.fabrics.emulation import MANAGEMENT, Link

HUB = "hub"
HUB_ADDRESS = "10.76.0.254"
"""The login node on the management network, whose nodes are 10.76.0.1 and on."""
MOST_NODES = 64
# In a cluster's folder: its socket, what it shall be, and which folders of /tmp and /dev/shm it shares.
CONTROL, SPEC, SHARED = "control", "spec.json", "shared.json"

ETHERNET = Link("eth0", 100_000_000)
OMNI_PATH = Link("opa0", 400_000_000)


@dataclass(frozen=True)
class Spec:
    """A cluster of `nodes` equal nodes n0, n1, … and a login node `hub`, all on this machine.

    `cpus_per_node` and `memory_mb` are what Slurm believes, whatever the machine has. `links` are the
    fabrics, one interface on every node each. `shared` are folders of /tmp or /dev/shm that all nodes see
    (everything else there is each node's own); the rest of the disk is shared anyway. `tmp_bytes` is the
    size of each node's /tmp, `slurm_options` are further lines of slurm.conf. `memory_limits`: Slurm kills
    what takes more memory than it asked for, by cgroups of version 1.
    """

    nodes: int = 4
    gpus_per_node: int = 2
    gpu_type: str = "v100"
    cpus_per_node: int = 4
    memory_mb: int = 16_000
    links: tuple[Link, ...] = (ETHERNET, OMNI_PATH)
    shared: tuple[Path, ...] = ()
    tmp_bytes: int = 4 << 30
    slurmd_timeout_s: int = 10
    min_job_age_s: int = 300
    memory_limits: bool = False
    slurm_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise LaunchError on what can't be made."""
        names = [link.interface for link in self.links]
        if not 1 <= self.nodes <= MOST_NODES:
            raise LaunchError(f"a testbed has 1 to {MOST_NODES} nodes, not {self.nodes}: give another number")
        if self.gpus_per_node < 0 or self.cpus_per_node < 1:
            raise LaunchError(
                f"a testbed's node has 0 or more GPUs and 1 or more CPUs, not {self.gpus_per_node} and "
                f"{self.cpus_per_node}: give other numbers"
            )
        if len(set(names)) < len(names) or {MANAGEMENT, "lo"} & set(names):
            raise LaunchError(
                f"the interfaces {', '.join(names)} need names of their own, and none may be lo or "
                f"{MANAGEMENT}: rename one"
            )

    @property
    def node_names(self) -> list[str]:
        """n0, n1, …"""
        return [f"n{k}" for k in range(self.nodes)]

    def to_json(self) -> str:
        """As text, which `from_json` reads."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """What `to_json` wrote."""
        values = json.loads(text)
        values["links"] = tuple(Link(**link) for link in values["links"])
        values["shared"] = tuple(Path(folder) for folder in values["shared"])
        values["slurm_options"] = tuple(values["slurm_options"])
        return cls(**{field.name: values[field.name] for field in fields(cls)})


def outermost(folders: Iterator[Path]) -> tuple[Path, ...]:
    """The folders, resolved and sorted, without those inside another."""
    kept: list[Path] = []
    for folder in sorted({folder.resolve() for folder in folders}):
        if not any(folder.is_relative_to(other) for other in kept):
            kept.append(folder)
    return tuple(kept)
