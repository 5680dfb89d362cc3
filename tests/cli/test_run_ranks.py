"""Under torchrun every rank captures and writes, rank 0 prints, and all of them end."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import HANG_S
from tests.scripts import command, environment, write

pytest.importorskip("torch.distributed")

SOURCE = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    # Ranks see other shapes, and take other times: they must end after the same step.
    rows = 4 + (step + rank) % (1 + rank)
    optimizer.zero_grad()
    model(torch.ones(rows, 8)).mean().backward()
    time.sleep(0.002 * rank * (step % 3))
    optimizer.step()
"""


def test_two_ranks_are_diagnosed_together(tmp_path: Path) -> None:
    write(tmp_path, SOURCE)
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517", "-m"]
    options = ("--warmup", "3", "--steps", "4", "--profiled", "2", "--out", "kept")
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *command(tmp_path, *options), "train.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(),
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"-bound( \(uncertain\))?\. |Bound by: ", done.stderr)) == 1
    for rank in range(2):
        folder = tmp_path / "kept" / f"rank{rank}"
        diagnosis = json.loads((folder / "diagnosis.json").read_text())
        assert diagnosis["step"]["kind"].startswith("train")
        assert (folder / "trace.json").exists()
