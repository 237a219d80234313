"""A parsed configuration: names resolved, defaults filled in, quantities in base units."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fabricbench.cell import canonical_json


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What makes an emulated cluster a scale model: bytes are divided, times multiplied."""

    bytes: float
    time: float


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """What sbatch is asked for beside what a cell itself says; None for the site's default."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool = True
    requeue: bool = False
    gpus_by: str = "gres"
    """gres or gpus (by --gres or --gpus-per-node) or none."""
    gpu_type: str | None = None
    memory: int | str | None = None
    """Of each node: MiB, or "all"."""
    switches: str | None = None
    setup_s: float = 180.0
    """What a job's time limit has over its workload's time-out."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, each as a shell would take it."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The machines that a campaign runs on."""

    kind: str
    """emulated, host, slurm or allocation."""
    nodes: int
    gpus_per_node: int
    binding: Mapping[str, Any]
    """cpu (auto, core, none, or the cores of each local rank), memory (auto, local, none) and near (auto,
    nic, gpu, none)."""
    scale: Scale
    bootstrap: str | None = None
    """The interface over which ranks meet; None for what hosts' names resolve to."""
    concurrent_cells: int = 1
    placement: tuple[str, ...] = ("packed",)
    """packed, spread, or both."""
    nodelist: tuple[str, ...] = ()
    """Every node that may be used, those to exclude taken out; none for any."""
    exclude: tuple[str, ...] = ()
    cpus_per_rank: int | None = None
    """None for the workload's threads and its engine's."""
    modules: tuple[str, ...] = ()
    container: str | None = None
    slurm: Slurm = field(default_factory=Slurm)

    @property
    def by_slurm(self) -> bool:
        """Whether Slurm starts the ranks."""
        return self.kind in ("slurm", "allocation")

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Cluster":
        """The inverse of `Campaign.to_json`, for its cluster."""
        lists = ("placement", "nodelist", "exclude", "modules")
        slurm = {**plain["slurm"], "options": tuple(plain["slurm"]["options"])}
        parts = {"scale": Scale(**plain["scale"]), "slurm": Slurm(**slurm)}
        return cls(**{**plain, **{key: tuple(plain[key]) for key in lists}, **parts})


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """A network, and how it is selected and shaped."""

    name: str
    kind: str
    """emulated, ethernet-tcp, roce, infiniband, omnipath, slingshot or efa."""
    interface: tuple[str, ...]
    """Names that the network interface may have; none when it is found by subnet or adapter."""
    subnet: str | None
    """The interface is whatever has an address in this network."""
    adapter: tuple[str, ...]
    """Names that the RDMA adapter may have."""
    port: int
    """The adapter's."""
    provider: str | None
    """libfabric's; None for the default of the kind."""
    ports_per_node: int
    """Exactly so many of the names must exist on every node."""
    rate_bit_s: int | None
    """Line rate of one port of the real network; None when it isn't given."""
    effective_bit_s: int | None
    """What the transport reached of it, where links are shaped to that; None for the line rate."""
    link_bit_s: int | None
    """Rate of one port as shaped here: what is reached of rate_bit_s, divided by both scales."""
    delay_s: float
    """One-way delay of the real network (not scaled)."""
    jitter_s: float
    loss: float
    """A share, from 0 to below 1."""
    environment: Mapping[str, str | None]

    @property
    def definition(self) -> dict[str, Any]:
        """The network itself as plain data, without its name here and without variables."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self).items()
            if key not in ("name", "environment")
        }


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A named way to communicate: an engine with its options."""

    name: str
    engine: str
    options: Mapping[str, Any]
    """Those that were given, and defaults that don't depend on the fabric: library, transport, buffers,
    launch, gpudirect, algorithm, protocol, channels."""
    environment: Mapping[str, str | None]
    """None takes a variable out, as in every environment here."""


@dataclass(frozen=True, kw_only=True)
class Matcher:
    """Matches points of the grid; None matches all."""

    workload: tuple[str, ...] | None = None
    fabric: tuple[str, ...] | None = None
    backend: tuple[str, ...] | None = None
    gpus: tuple[int, ...] | None = None
    repeat: tuple[int, ...] | None = None
    placement: tuple[str, ...] | None = None
    params: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Of those parameters that may be lists (variants.AXES); a workload without one of them never matches."""

    def matches(
        self,
        *,
        workload: str,
        fabric: str,
        backend: str,
        gpus: int,
        repeat: int,
        placement: str,
        params: Mapping[str, Any],
    ) -> bool:
        """Whether every key that was given holds the point's value; `params`: one value each."""
        return (
            (self.workload is None or workload in self.workload)
            and (self.fabric is None or fabric in self.fabric)
            and (self.backend is None or backend in self.backend)
            and (self.gpus is None or gpus in self.gpus)
            and (self.repeat is None or repeat in self.repeat)
            and (self.placement is None or placement in self.placement)
            and all(name in params and params[name] in wanted for name, wanted in self.params.items())
        )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A program to run, and its part of the grid."""

    name: str
    kind: str
    params: Mapping[str, Any]
    """What the kind defines, and nothing else; those of variants.AXES may be lists."""
    variants: tuple[Mapping[str, Any], ...]
    """The parameters of its cells: one value each, for every choice from those that are lists."""
    device: str
    fabrics: tuple[str, ...]
    backends: tuple[str, ...]
    gpus: tuple[int, ...]
    repeats: int
    ranks_per_node: int
    threads_per_rank: int
    timeout_s: float
    environment: Mapping[str, str | None]
    only: tuple[Matcher, ...]
    leave_out: tuple[Matcher, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Along one axis, every other value against the baseline."""

    by: str
    """fabric, backend, library, placement, or a parameter that is a list somewhere."""
    baseline: str
    """Of a parameter, the value as text."""


@dataclass(frozen=True, kw_only=True)
class PublishedRate:
    """One rate of a reference that a cell of the grid stands for."""

    model: str
    fabric: str
    """The config's name of it."""
    batch: int
    """Images per GPU."""
    gpus: int
    images_per_s: float
    """Of all GPUs together."""
    one_gpu_images_per_s: float
    """What the same reference has for one GPU without a network."""
    fits: str | None
    """effective or fixed_cost: the value that was chosen by this rate; None for a prediction."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A reference, and its rates that the campaign repeats."""

    reference: str
    title: str
    url: str
    device: str
    unresolved: float
    """A share: differences in the reference that are smaller mean nothing."""
    engine: str
    """The reference's, whichever the cells run on."""
    rates: tuple[PublishedRate, ...]


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """The whole configuration. Everything by name is sorted, so that the order of keys is no difference."""

    name: str
    cluster: Cluster
    fabrics: Mapping[str, Fabric]
    backends: Mapping[str, Backend]
    workloads: Mapping[str, Workload]
    gpus: tuple[int, ...]
    """GPU counts of workloads that don't have their own."""
    repeats: int
    """Repeats of workloads that don't have their own."""
    seed: int
    """Draws the order of cells within each block."""
    compare: tuple[Comparison, ...]
    margin: float
    """A share: below it two sides are equivalent."""
    pair_within_s: float
    allow_version_differences: bool
    accept_failures: bool
    published: Published | None
    environment: Mapping[str, str | None]
    only: tuple[Matcher, ...]
    leave_out: tuple[Matcher, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data as JSON has it (lists, not tuples), keys sorted."""
        plain: dict[str, Any] = json.loads(canonical_json(asdict(self)))
        for workload in plain["workloads"].values():
            del workload["variants"]  # they follow from params, and stand in the cells
        return plain
