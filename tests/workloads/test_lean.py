"""torch without its compiler: DDP and optimisers work on the stand-in, and `compile` on the real one."""

import subprocess
import sys

import pytest
from cells import PROFILE, TRAIN, a_cell

pytestmark = pytest.mark.slow  # torch takes seconds to import

TRAINS = """
import sys
from fabricbench.cell import Cell
from fabricbench.workloads import entry
entry.preload(Cell.from_json(sys.argv[1]))
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1, bias=False))
nn.init.zeros_(model.module.weight)
optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
optimiser.zero_grad()
with model.no_sync():
    model(torch.tensor([[1.0, 2.0]])).sum().backward()
model(torch.tensor([[1.0, 2.0]])).sum().backward()
optimiser.step()
print(model.module.weight.tolist(), "sympy" in sys.modules)
try:
    torch._dynamo.explain
except AttributeError as error:
    print(error)
dist.destroy_process_group()
"""
COMPILES = """
import sys
from fabricbench.cell import Cell
from fabricbench.workloads import entry
entry.preload(Cell.from_json(sys.argv[1]))
import torch
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""


def run(program, cell):
    """What a program prints in a process of its own, with the cell as its argument."""
    command = [sys.executable, "-c", program, cell.canonical()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_ddp_and_an_optimiser_train_without_the_compiler():
    """Two backward passes, one without reduction, and a step; whatever else is asked for is refused."""
    cell = a_cell("train", "gloo", device="replay", params=TRAIN | {"profile": PROFILE})
    trained, refused = run(TRAINS, cell)
    assert trained == "[[-2.0, -4.0]] False"
    assert refused.startswith("torch._dynamo.explain is asked for, and a replay runs without")


def test_a_cell_that_compiles_gets_the_real_compiler():
    """Where models are real nothing stands in torch._dynamo's place."""
    assert run(COMPILES, a_cell("train", "gloo", params=TRAIN | {"compile": True})) == ["2.0"]
