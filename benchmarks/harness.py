"""Our training cell against a bare hand-written DDP loop: the same model on the same two ranks, in turn.

    .venv/bin/python benchmarks/harness.py [PAIRS]

Each pair (15 unless said; one more comes before, uncounted) is one cell with `cluster.kind: host`, run as the
workflow runs it, and one run of the script below, which is what a person writes by hand: torch.distributed
over Gloo, DDP, a loop, a clock. Which goes first alternates. Both make the same steps: as many of warm-up,
and a fixed number that is timed; images/s is by the median step of rank 0. Prints each side's medians, and
Student's 95 % interval of the mean log ratio ours / bare, as a factor. Its lower end is to be at least 0.97.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cells import TRAIN, a_cell, a_fabric

from fabricbench.analysis.compare import t_interval
from fabricbench.fabrics.selection import environment
from fabricbench.record import Record, by_metric, read_record
from fabricbench.runner import alone_on_this_machine, run_cell

PAIRS = 15
STEPS, WARMUP = 30, 5
PARAMS = TRAIN | {"batch": 8, "image_size": 64, "warmup": WARMUP, "warmup_most": WARMUP}
PARAMS |= {"steps": STEPS, "steps_most": STEPS, "budget": 600.0}

BARE = """
import json, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18

batch, size, warmup, steps, result = *map(int, sys.argv[1:5]), sys.argv[5]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(20080857)
model = resnet18(weights=None).train()
model = DistributedDataParallel(model, gradient_as_bucket_view=True, forward_sync_buffers=False)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
torch.manual_seed(rank)
images, labels = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
times = []
for step in range(warmup + steps):
    began = time.perf_counter()
    optimiser.zero_grad(set_to_none=False)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimiser.step()
    times.append(time.perf_counter() - began)
if rank == 0:
    open(result, "w").write(json.dumps(times[warmup:]))
dist.barrier()
dist.destroy_process_group()
"""


def ours(folder: Path) -> float:
    """images/s of a cell of the workflow."""
    fabric = a_fabric("ethernet-tcp", name="loopback", interface=["lo"], rate_bit_s=None, link_bit_s=None)
    cell = a_cell(
        "train",
        "gloo",
        params=PARAMS,
        fabric=fabric,
        environment=environment(fabric, {"name": "gloo", "engine": "gloo"}, "cpu"),
        launcher="host",
        nodes=1,
        ranks_per_node=2,
    )
    path = folder / f"{Record(cell=cell, code_key='', status='ok').id}.json"
    if run_cell(cell, "", path, timeout_s=600, accept_failures=False, neighbours=[]):
        sys.exit("the cell failed")
    times = by_metric(read_record(path).samples, "step_s")[0].values
    return images_per_s(times)


def bare(folder: Path) -> float:
    """images/s of the script, started by torchrun's variables."""
    script, result = folder / "bare.py", folder / "times.json"
    script.write_text(BARE)
    arguments = [str(PARAMS["batch"]), str(PARAMS["image_size"]), str(WARMUP), str(STEPS), str(result)]
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29571", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    with alone_on_this_machine():
        ranks = [
            subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=os.environ | known | {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"},
            )
            for rank in range(2)
        ]
        if any(rank.wait() for rank in ranks):
            sys.exit("the bare loop failed")
    return images_per_s(json.loads(result.read_text()))


def images_per_s(times: list[float]) -> float:
    """Of both ranks, by the median step."""
    return 2 * PARAMS["batch"] / statistics.median(times)


def main() -> None:
    """Measure pairs in turn and print the ratio."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    both: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(pairs + 1):
            first, second = (ours, bare) if number % 2 else (bare, ours)
            found = {side: side(Path(name)) for side in (first, second)}
            both.append((found[ours], found[bare]))
            print(f"{number}: ours {found[ours]:.1f}, bare {found[bare]:.1f} images/s", flush=True)
    logs = [math.log(mine / theirs) for mine, theirs in both[1:]]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = (math.exp(end) for end in t_interval(statistics.fmean(logs), error, len(logs) - 1, 0.95))
    mine, theirs = (statistics.median(side) for side in zip(*both[1:], strict=True))
    ratio = math.exp(statistics.fmean(logs))
    print(f"\n{pairs} pairs: ours {mine:.1f}, bare {theirs:.1f} images/s (medians)")
    print(f"ours / bare: {ratio:.4f} ({low:.4f} to {high:.4f}), 95 %; to be at least 0.97 at its lower end")
    sys.exit(low < 0.97)


if __name__ == "__main__":
    main()
