"""Faults of real scripts on a CPU, found through `boundby run`."""

from pathlib import Path
from typing import Any

import pytest

from tests.scripts import Done, run

pytest.importorskip("torch")

PROFILED = ("--warmup", "4", "--steps", "6", "--profiled", "2")

# Checkpointed layers, and gradients filled with zeros.
WASTEFUL = """
import torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
body = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)])
optimizer = torch.optim.SGD(body.parameters(), lr=0.01)
x = torch.randn(128, 512)
for _ in range(100):
    optimizer.zero_grad(set_to_none=False)
    loss = checkpoint(body, x, use_reentrant=False).square().mean()
    loss.backward()
    optimizer.step()
"""

# A collection of a large heap in every step.
COLLECTING = """
import gc
import torch
torch.manual_seed(0)
heap = [[number] for number in range(300_000)]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).mean().backward()
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
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
"""


def findings(done: Done) -> dict[str, dict[str, Any]]:
    assert done.code == 0, done.err
    assert done.diagnosis is not None
    return {finding["fault"]: finding for finding in done.diagnosis["findings"]}


def test_recomputed_layers_and_zeroed_gradients_are_found(tmp_path: Path) -> None:
    done = run(tmp_path, WASTEFUL, options=PROFILED)
    found = findings(done)
    wall = done.step["wall_ns"]
    assert found["zeroed-gradients"]["where"] == ["train.py:9"]
    assert found["wasteful-checkpointing"]["where"][0] == "train.py:10"
    for fault in ("zeroed-gradients", "wasteful-checkpointing"):
        assert 0 < found[fault]["saving_ns"]["expected"] < 0.5 * wall


def test_garbage_collection_in_every_step_is_found(tmp_path: Path) -> None:
    done = run(tmp_path, COLLECTING, options=PROFILED)
    finding = findings(done)["collector-pauses"]
    assert finding["where"] == ["train.py:12"]
    # Walking 300,000 lists, and all that torch has made, beside 64 x 64 products.
    assert finding["saving_ns"]["expected"] > 0.5 * done.step["wall_ns"]


def test_script_without_faults_has_no_finding(tmp_path: Path) -> None:
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


def test_graph_break_is_reported_at_its_line(tmp_path: Path) -> None:
    done = run(tmp_path, IN_PIECES, options=PROFILED)
    assert findings(done)["recompilation"]["where"] == ["train.py:9"]
