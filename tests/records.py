"""Synthetic grids and records for tests, drawn with fixed seeds."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fabricbench.cell import Cell, cell_id
from fabricbench.record import Record, Series, by_metric, failure_path, write_record

CODE_KEY = "0123456789abcdef"
LINK_BIT_S = {"ethernet": 50e6, "opa": 200e6, "opa-again": 200e6}
"""As shaped: 25 and 100 Gbit/s divided by S·D = 500."""
INTERFACE = {"ethernet": "eth0", "opa": "opa0", "opa-again": "opa0"}
VARIABLE = {"gloo": "GLOO_SOCKET_IFNAME", "mpi": "FI_TCP_IFACE"}
START_AFTER_S = {"ethernet": 0, "opa": 20, "opa-again": 40}
"""When the cells of one block start, one fabric after the other."""
BLOCK_S = 60
NOISE = 0.004
"""From one cell to the next, as a share of a step; within a cell it is SAMPLE_NOISE."""
NOISY = ("resnet50", "ethernet", 16)
"""Here it is ten times as much, so that nothing can be decided."""
SAMPLE_NOISE = 0.01
CARRIED_BYTES = 88_000_000
"""What a node of a synthetic cell sent, without headers."""
PARAMS: dict[str, dict[str, Any]] = {
    "train": {
        "model": "vgg16",
        "batch": 64,
        "profile": {"images_per_s": 227.0, "batch": 64, "source": "Horovod README benchmark, 2017, Pascal"},
    },
    "cfd": {"case": "taylor-green", "cells": [48, 48, 48]},
    "micro": {"sizes": [1024, 16384, 262144, 4194304]},
}


def make_cell(kind: str = "train", **changes: Any) -> Cell:
    """A cell on ethernet over gloo, 4 GPUs, one per node; `fabric` and `backend` are given by name."""
    fabric = changes.pop("fabric", "ethernet")
    backend = changes.pop("backend", "mpi" if kind == "cfd" else "gloo")
    gpus = changes.pop("gpus", 4)
    link, interface = LINK_BIT_S.get(fabric, 50e6), INTERFACE.get(fabric, "eth0")
    cell = Cell(
        workload={"train": "vgg16", "cfd": "euler", "micro": "messages"}[kind],
        kind=kind,
        params=PARAMS[kind],
        fabric={
            "name": fabric,
            "kind": "emulated",
            "interface": [interface],
            "subnet": None,
            "adapter": [],
            "port": 1,
            "provider": None,
            "ports_per_node": 1,
            "rate_bit_s": link * 500,
            "link_bit_s": link,
            "delay_s": 0.0,
            "jitter_s": 0.0,
            "loss": 0.0,
        },
        backend={"name": backend, "engine": backend},
        environment={VARIABLE.get(backend, "NCCL_SOCKET_IFNAME"): interface},
        launcher="emulated",
        binding={"cpu": "auto", "memory": "auto", "near": "auto"},
        gpus=gpus,
        nodes=gpus,
        ranks_per_node=1,
        threads_per_rank=1,
        device="replay" if kind == "train" else "cpu",
        scale={"bytes": 50, "time": 10},
        repeat=1,
    )
    return replace(cell, **changes)


def make_record(cell: Cell, values: list[float] | None = None, **changes: Any) -> Record:
    """An ok record of a cell; `values` are its step_s (train, cfd), else samples are drawn by its id."""
    draw = random.Random(cell_id(cell, CODE_KEY))
    samples = _messages(cell, draw) if cell.kind == "micro" else _steps(cell, draw, values)
    record = Record(
        cell=cell,
        code_key=CODE_KEY,
        status="ok",
        samples=samples,
        facts=_facts(cell),
        evidence=make_evidence(cell),
        provenance=_provenance(cell),
        phases_s={"namespaces": 0.2, "import": 1.8, "ranks_up": 0.6, "measured": 6.0, "total": 9.0},
        start=_start(cell).isoformat(),
        end=(_start(cell) + timedelta(seconds=9)).isoformat(),
    )
    return replace(record, **changes)


def _start(cell: Cell) -> datetime:
    after_s = BLOCK_S * cell.repeat + START_AFTER_S.get(cell.fabric["name"], 0)
    return datetime.fromisoformat("2026-11-30T10:00:00+00:00") + timedelta(seconds=after_s)


def make_on_slurm(cell: Cell, *, after_s: float = 0.0, others: int | None = 0, **changes: Any) -> Record:
    """A record of a cell on a real cluster that began so long after the campaign did, beside others' jobs."""
    start = datetime.fromisoformat("2026-11-30T10:00:00+00:00") + timedelta(seconds=after_s)
    job = {
        "id": f"{1000 + after_s:.0f}",
        "cluster": "site",
        "partition": "batch",
        "nodes": [f"n{node}" for node in range(cell.nodes)],
        "restarts": 0,
        "submitted": (start - timedelta(seconds=45)).isoformat(),
        "started": (start - timedelta(seconds=3)).isoformat(),
        "time_limit_s": 480.0,
        "others": {} if others is None else {"jobs": others, "nodes": 2 * others},
    }
    cell = replace(cell, launcher="slurm", scale={"bytes": 1, "time": 1})
    record = make_record(cell, start=start.isoformat(), end=(start + timedelta(seconds=9)).isoformat())
    return replace(record, provenance=record.provenance | {"job": job}, **changes)


def make_failure(cell: Cell, status: str, reason: str) -> Record:
    """A record of a cell that failed."""
    return make_record(cell, status=status, reason=reason, samples=[], facts={}, evidence={})


def make_mislabelled(cell: Cell, **changes: Any) -> Record:
    """A cell whose bytes went over eth9; all else of its record is as good as any."""
    evidence = make_evidence(cell)
    rail = INTERFACE.get(cell.fabric["name"], "eth0")
    for counters in evidence["nodes"].values():
        counters["eth9"] = counters.pop(rail)
        counters[rail] = {"rx_bytes": 4_312, "tx_bytes": 4_206}
    because = f"n0 had to send 88.0 to 92.4 MB; {rail}, which the cell names, carried 4.2 kB and eth9 91.5 MB"
    evidence |= {"verdict": "mislabelled", "because": because, "of_formula": 0.00005}
    return make_record(cell, status="mislabelled", reason=because, evidence=evidence, **changes)


def make_grid(cells: Iterable[Cell], unsupported: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """The plain content of grid.json for some cells."""
    cells = list(cells)
    return {
        "schema": 1,
        "campaign": {
            "name": "default",
            "cluster": {"kind": "emulated", "nodes": 16, "scale": {"bytes": 50, "time": 10}},
            "fabrics": {
                name: json.loads(json.dumps(fabric)) | {"environment": {}}
                for name, fabric in sorted({cell.fabric["name"]: cell.fabric for cell in cells}.items())
            },
            "seed": 1,
            "compare": [{"by": "fabric", "baseline": "ethernet"}, {"by": "backend", "baseline": "gloo"}],
            "margin": 0.05,
            "pair_within_s": 3600.0,
            "allow_version_differences": False,
        },
        "cells": [
            {
                "id": cell_id(cell, CODE_KEY),
                "cell": json.loads(cell.canonical()),
                "code_key": CODE_KEY,
                "timeout_s": 300,
            }
            for cell in cells
        ],
        "unsupported": list(unsupported),
    }


def put(record: Record, results: Path) -> Path:
    """Write a record, or a failure beside its place, and its log; returns the path."""
    path = results / f"{record.id}.json"
    if record.status != "ok" and not record.accepted:
        path = failure_path(path)
    write_record(record, path)
    log = results / "logs" / f"{record.id}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"log of {record.id}\n")
    return path


def make_small(cell: Cell) -> Record:
    """A good record of a cell that sent too little to prove what carried it."""
    evidence = make_evidence(cell)
    because = "no node had to send more than 2.1 MB; from 10 MB on the counters can tell"
    evidence |= {"verdict": "too little to prove", "because": because, "of_formula": None}
    return make_record(cell, evidence=evidence)


def make_unsteady(cell: Cell) -> Record:
    """A good record of a cell that got slower by 6 % from its first step to its last."""
    record = make_record(cell)
    steps = by_metric(record.samples, "step_s")[0]
    ramped = [value * (0.97 + 0.06 * at / (len(steps.values) - 1)) for at, value in enumerate(steps.values)]
    return replace(record, samples=[replace(steps, values=ramped), *record.samples[1:]])


def make_two_humped(cell: Cell) -> Record:
    """A good record of a cell in which every other step took 12 % longer."""
    record = make_record(cell)
    steps = by_metric(record.samples, "step_s")[0]
    humped = [value * (0.94 if at % 2 else 1.06) for at, value in enumerate(steps.values)]
    return replace(record, samples=[replace(steps, values=humped), *record.samples[1:]])


def make_slow_rank(cell: Cell, rank: int = 3) -> Record:
    """A good record of a cell in which one rank takes 4 % longer and is the slowest in 9 of 10 steps."""
    record = make_record(cell)
    samples = []
    for series in record.samples:
        if series.metric == "step_median_s" and series.rank == rank:
            series = replace(series, values=[value * 1.04 for value in series.values])
        if series.metric == "step_slowest_rank":
            values = [float(rank) if at % 10 else 0.0 for at in range(len(series.values))]
            series = replace(series, values=values)
        samples.append(series)
    return replace(record, samples=samples)


MISLABELLED_CELL, SMALL_CELL, ODD_CELL = 13, 29, 72
DRIFTING_CELL, HUMPED_CELL, SLOW_RANK_CELL = 34, 62, 64
"""Places in `campaign_cells` of what is out of the ordinary in `write_campaign`."""


def campaign_cells(repeats: int = 3) -> Iterator[Cell]:
    """The cells of a campaign much like the default one."""
    for repeat in range(1, repeats + 1):
        for fabric in ("ethernet", "opa", "opa-again"):
            for gpus in (1, 4, 16):
                vgg = make_cell(fabric=fabric, gpus=gpus, repeat=repeat)
                yield vgg
                yield replace(vgg, workload="resnet50", params=dict(vgg.params) | {"model": "resnet50"})
            for gpus in (1, 2):
                yield make_cell("cfd", fabric=fabric, gpus=gpus, repeat=repeat)
            for backend in ("gloo", "mpi"):
                yield make_cell("micro", fabric=fabric, gpus=4, backend=backend, repeat=repeat)


def write_campaign(results: Path) -> dict[str, Any]:
    """A whole campaign on disk; returns its grid.

    One cell failed, one timed out, one was mislabelled and one is missing; one sent too little to prove,
    and one pair of fabrics differs in a kernel. One cell drifts, one has two humps, one a slow rank.
    """
    cells = list(campaign_cells())
    bad = {
        7: ("failed", "rank 3 on n3: RuntimeError: connection closed by peer [10.0.0.4]:41234"),
        31: ("timeout", "no end within 300 s; ranks 0-15 were in step 12"),
    }
    odd_runs = {
        DRIFTING_CELL: make_unsteady,
        HUMPED_CELL: make_two_humped,
        SLOW_RANK_CELL: make_slow_rank,
    }
    for index, cell in enumerate(cells):
        if index == MISLABELLED_CELL:
            put(make_mislabelled(cell), results)
        elif index == SMALL_CELL:
            put(make_small(cell), results)
        elif index in odd_runs:
            put(odd_runs[index](cell), results)
        elif index == ODD_CELL:
            record = make_record(cell)
            record.provenance["nodes"][0]["kernel"] = "6.13.0-amd64"
            put(record, results)
        elif index in bad:
            put(make_failure(cell, *bad[index]), results)
        elif index != len(cells) - 1:
            put(make_record(cell), results)
    unsupported = {"workload": "euler", "fabric": "opa", "backend": "nccl", "gpus": 2}
    return make_grid(cells, [unsupported | {"reason": "nccl needs a CUDA device; device is cpu"}])


def _steps(cell: Cell, draw: random.Random, values: list[float] | None) -> list[Series]:
    """Steps of rank 0, the extremes over ranks, and a median per rank."""
    given = values if values is not None else [_step_s(cell) * draw.gauss(1, SAMPLE_NOISE) for _ in range(30)]
    block = 1.0 if values is not None else draw.gauss(1, _noise(cell))
    steps = [value * block for value in given]
    ranks = range(cell.gpus if steps else 0)
    medians = [
        Series(metric="step_median_s", unit="s", values=[sorted(steps)[len(steps) // 2]], rank=rank)
        for rank in ranks
    ]
    slowest = [float(draw.choice(ranks)) for _ in steps] if len(ranks) > 1 else []
    halo = [Series(metric="halo_wait_s", unit="s", values=[v * 0.1 for v in steps], rank=0)]
    return [
        Series(metric="step_s", unit="s", values=steps, rank=0),
        Series(metric="step_min_s", unit="s", values=[value * 0.99 for value in steps]),
        Series(metric="step_max_s", unit="s", values=[value * 1.01 for value in steps]),
        *([Series(metric="step_slowest_rank", unit="rank", values=slowest)] if slowest else []),
        *medians,
        *(halo if cell.kind == "cfd" else []),
        *(_apart(cell, draw) if cell.kind == "train" and values is None else []),
    ]


def _apart(cell: Cell, draw: random.Random) -> list[Series]:
    """5 steps without DDP and 5 without synchronisation, with one rank a little slower than the others."""
    compute = _compute_s(cell)
    found = []
    for name, share in (("alone", 1.0), ("nosync", 1.01)):
        steps = [compute * share * draw.gauss(1, SAMPLE_NOISE / 4) for _ in range(5)]
        medians = [sorted(steps)[2] * (1.02 if rank == 1 else 1.0) for rank in range(cell.gpus)]
        found += [
            Series(metric=f"{name}_s", unit="s", values=steps, rank=0),
            *(
                Series(metric=f"{name}_median_s", unit="s", values=[median], rank=rank)
                for rank, median in enumerate(medians)
            ),
        ]
    return found


def _noise(cell: Cell) -> float:
    return NOISE * (10 if (cell.workload, cell.fabric["name"], cell.gpus) == NOISY else 1)


def _step_s(cell: Cell) -> float:
    """A plausible raw step: compute, plus what the wire can't hide."""
    n, link = cell.gpus, cell.fabric["link_bit_s"]
    if cell.kind == "cfd":
        return 0.4 / n + (0 if n == 1 else 3e6 / link)
    gradient_bit = {"vgg16": 553e6, "resnet50": 102e6}[cell.params["model"]] * 8 / cell.scale["bytes"]
    compute = _compute_s(cell)
    wire = 2 * (n - 1) / n * gradient_bit / link
    return compute + max(0.0, wire - 0.6 * compute)


def _compute_s(cell: Cell) -> float:
    """What a step computes for as it runs here; in proportion to the batch, half of it at bf16."""
    at_64 = {"vgg16": 0.28, "resnet50": 0.18}[cell.params["model"]] * cell.scale["time"]
    return at_64 * cell.params["batch"] / 64 * (0.5 if cell.params.get("precision") == "bf16" else 1.0)


def _messages(cell: Cell, draw: random.Random) -> list[Series]:
    link, n = cell.fabric["link_bit_s"] * 0.96, cell.gpus
    latency = 60e-6 if cell.backend["name"] == "gloo" else 25e-6
    factor = {"pingpong_s": 1.0, "stream_s": 1.0, "allreduce_s": 2 * (n - 1) / n}
    return [
        Series(
            metric=metric,
            unit="s",
            bytes=size,
            rank=0,
            values=[
                (latency + factor[metric] * max(0, size - 24000) * 8 / link)
                * draw.lognormvariate(0, 2 * SAMPLE_NOISE)
                for _ in range(20)
            ],
        )
        for metric in factor
        for size in (1024, 4096, 16384, 65536, 262144, 1048576, 4194304)
    ]


def _facts(cell: Cell) -> dict[str, Any]:
    if cell.kind == "train":
        return {
            "images_per_step": cell.params["batch"] * cell.gpus,
            "gradient_bytes": 11_068_600,
            "buckets": 6 if cell.gpus > 1 else 0,
            "warmup_steps": 8,
            "steady": True,
            "stopped_by": "width",
            "peak_memory_bytes": 3 * 2**29,
            "peak_memory_of": "process",
        }
    if cell.kind == "cfd":
        return {"dof": 552_960, "dof_per_rank": 552_960 // cell.gpus, "stages_per_step": 3}
    return {}


def make_evidence(cell: Cell) -> dict[str, Any]:
    """Evidence as it is judged: verified, or not applicable on one node."""
    rail = INTERFACE.get(cell.fabric["name"], "eth0")
    names = [f"n{node}" for node in range(cell.nodes)]
    carried = CARRIED_BYTES if cell.nodes > 1 else 0
    nodes = {
        name: {
            rail: {"rx_bytes": round(1.04 * carried) + at, "tx_bytes": round(1.04 * carried) + at},
            "lo": {"rx_bytes": 0, "tx_bytes": 0},
        }
        for at, name in enumerate(names)
    }
    emulation = {
        "shaping": "tbf",
        "link_bit_s": cell.fabric["link_bit_s"],
        "burst_bytes": 1250,
        "delay": "not emulated: this kernel has no netem",
        "trustworthy_from_bytes": 262144,
    }
    found = {"nodes": nodes, "rails": {name: [rail] for name in names}, "emulation": emulation}
    found["baseline"] = {name: {rail: {"rx_bytes": 420.0, "tx_bytes": 400.0}} for name in names}
    found["congestion"] = {name: {"tcp_retransmits": 3 if at == 0 else 0} for at, name in enumerate(names)}
    found["words"] = [f"gloo: Connecting over {rail}"]
    if cell.nodes == 1:
        because = "all ranks are on one node, where shared memory and lo are lawful"
        return found | {"verdict": "not applicable", "because": because, "of_formula": None}
    span = {"tx_bytes": [carried, 1.05 * carried], "rx_bytes": [carried, 1.05 * carried]}
    return found | {
        "formula": {"algorithm": "ring all-reduce", "nodes": dict.fromkeys(names, span)},
        "verdict": "verified",
        "because": f"every node sent 104 % of what a ring all-reduce had to, over {rail}",
        "of_formula": 1.04,
    }


def _seats(cell: Cell) -> list[tuple[str, list[str]]]:
    """Ranks and hosts of up to four entries, as if the first ranks had other cores than the rest."""
    hosts = [f"n{node}" for node in range(cell.nodes)]
    first = [(str(rank), [host]) for rank, host in enumerate(hosts[:3])]
    return [*first, (f"3-{cell.gpus - 1}", hosts[3:])] if len(hosts) > 3 else first


def _provenance(cell: Cell) -> dict[str, Any]:
    cpu = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
    ranks = [
        {
            "ranks": ranks,
            "host": hosts,
            "cpu": cpu,
            "cores": [0, 1],
            "memory": None,
            "threads": 1,
            "versions": {"torch": "2.9.1+cpu", "mpi4py": "4.1.1", "mpich": "5.0.0", "numpy": "2.4.6"},
            "environment": dict(cell.environment),
            "hidden_config": [],
        }
        for ranks, hosts in _seats(cell)
    ]
    interfaces = {
        name: {"driver": "veth", "mtu": 1500, "speed_bit_s": 1e10} for name in ("eth0", "opa0", "eth9")
    }
    nodes = {
        "hosts": [f"n{node}" for node in range(cell.nodes)],
        "cpu": cpu,
        "kernel": "6.12.8-amd64",
        "clocksource": "tsc",
        "governor": None,
        "interfaces": interfaces,
        "adapters": {},
    }
    return {
        "fabricbench": "0.1.0",
        "revision": "4f2c9d1",
        "python": "3.11.2",
        "kernel": "6.12.8-amd64",
        "unset": ["NCCL_SOCKET_IFNAME"],
        "nodes": [nodes],
        "ranks": ranks,
    }
