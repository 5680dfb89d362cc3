"""A trial in which boundby itself fails counts for nothing, and says why."""

from pathlib import Path

import pytest

from boundby.capture.process.execution import Target
from boundby.prove import process
from tests.scripts import TRAINING, write

pytest.importorskip("torch")


def test_a_trial_that_cannot_be_watched(tmp_path: Path) -> None:
    source = f"""
import time
from boundby.capture.process.windows import Windows
def broken(*_): raise IndexError("not there")
Windows._open_clean = broken
{TRAINING}
for _ in range(200):
    train()
    time.sleep(0.01)
print("to its end")
"""
    target = Target(name=str(write(tmp_path, source)), args=[], is_module=False)
    observed = process.observe(
        process.Setting(target=target, steps=5),
        process.Wanted(arm=(), seed=1, limit_s=60.0),
        folder=tmp_path,
        cwd=tmp_path,
    )
    assert observed.problem is not None and not observed.samples_ns
    assert observed.problem.startswith("watching failed after ")
    assert observed.problem.endswith(" steps, and went no further: IndexError: not there")
    assert observed.log is not None
    log = Path(observed.log).read_text()
    assert "in broken" in log and "to its end" not in log
