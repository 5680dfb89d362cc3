"""Faults of real scripts on a CPU, found through `boundby run`."""

from pathlib import Path
from typing import Any

import pytest

from tests.scripts import Done, run

pytest.importorskip("torch")

PROFILED = ("--warmup", "4", "--steps", "6", "--profiled", "2")

# Checkpointed layers, gradients filled with zeros, and a collection of a large heap in every step.
WASTEFUL = """
import gc
import torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
heap = [[number] for number in range(300_000)]
wide = torch.nn.Linear(512, 8192)
body = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)], wide)
optimizer = torch.optim.SGD(body.parameters(), lr=0.01)
x = torch.randn(128, 512)
for _ in range(100):
    optimizer.zero_grad(set_to_none=False)
    loss = checkpoint(body, x, use_reentrant=False).square().mean()
    loss.backward()
    optimizer.step()
    gc.collect()
"""

TIDY = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(512, 256)
for _ in range(100):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""

IN_PIECES = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    def forward(self, x):
        x = self.first(x)
        print("", end="")
        return self.second(x)
torch.manual_seed(0)
model = torch.compile(Model(), backend="eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    # Its shape is another in every step, but the outermost module sees always the same.
    x = torch.ones(4, 8)
    model.anything = step
    model(x).mean().backward()
    optimizer.step()
"""


def findings(done: Done) -> dict[str, dict[str, Any]]:
    assert done.code == 0, done.err
    assert done.diagnosis is not None
    return {finding["fault"]: finding for finding in done.diagnosis["findings"]}


def test_three_faults_of_one_script(tmp_path: Path) -> None:
    done = run(tmp_path, WASTEFUL, options=PROFILED)
    found = findings(done)
    wall = done.step["wall_ns"]
    collecting = found["collector-pauses"]
    assert collecting["where"] == ["train.py:16"]
    # Walking 300,000 lists is most of such a step.
    assert 0.2 * wall < collecting["saving_ns"]["expected"] < wall
    assert found["zeroed-gradients"]["where"] == ["train.py:12"]
    assert found["wasteful-checkpointing"]["saving_ns"]["expected"] < 0.5 * wall


def test_a_script_without_them(tmp_path: Path) -> None:
    done = run(tmp_path, TIDY, options=PROFILED)
    ours = {
        "zeroed-gradients",
        "logits-materialised",
        "wasteful-checkpointing",
        "recompilation",
        "pageable-copies",
        "exposed-collectives",
        "openmp-spin",
    }
    assert not ours & findings(done).keys()
    assert done.diagnosis is not None
    assert done.diagnosis["bigger_chips"] == []


def test_a_graph_break_is_named_by_its_line(tmp_path: Path) -> None:
    done = run(tmp_path, IN_PIECES, options=PROFILED)
    assert findings(done)["recompilation"]["where"] == ["train.py:9"]
