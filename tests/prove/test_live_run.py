"""One script, started for real: sites are recorded, and a variant that ends it is blamed."""

import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from boundby.capture.process.execution import Target
from boundby.model.diagnosis import Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence
from boundby.prove.launch import Setting
from boundby.prove.live_run import LiveRun

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(100_000):
    loss = model(torch.ones(4, 8)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1_000_000:
        print("never")
"""


def test_a_script_is_measured_and_a_variant_that_ends_it_is_blamed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    candidates = [
        Candidate(key=key, faults=(key.partition("/")[0],), change=key)
        for key in ("planted/broken-backward", "unfused-optimizer/fused")
    ]
    run = LiveRun(
        setting=Setting(
            target=Target(name=str(script), args=[], is_module=False),
            folder=tmp_path,
            logs=tmp_path,
            plugins=["tests.prove.planted"],
            search_path=[str(ROOT), str(ROOT / "src")],
        ),
        candidates=candidates,
        evidence=Evidence(),
        deadline=time.monotonic() + 600,
        place=lambda: tmp_path,
    )
    run.run()
    evidence = run.evidence
    ruled = evidence.rulings["planted/broken-backward"]
    assert ruled.outcome is Outcome.FAILED
    assert ruled.why == "MemoryError: planted: no memory in backward"
    assert ruled.log is not None and "Traceback" in Path(ruled.log).read_text()
    # The script was started again, and the other fix was measured.
    assert "unfused-optimizer/fused" in evidence.preparation_s
    sites = evidence.sites
    assert sites is not None
    assert sites.executed == {str(script): [1, 2, 3, 4, 5, 6, 7, 8, 9]}
    (optimizer,) = sites.optimizers
    assert (optimizer.type_name, optimizer.made[0].line) == ("AdamW", 3)
    assert [site.line for site in sites.forward_calls] == [5]
    assert [site.line for site in sites.backward_calls] == [7]
    assert [site.line for site in sites.optimizer_steps] == [8]


def test_a_first_use_ends_with_the_time_left_to_measure(tmp_path: Path) -> None:
    """What comes later is reserved for the final check of the fixes that were chosen."""
    run = LiveRun(
        setting=Setting(
            target=Target(name="train.py", args=[], is_module=False),
            folder=tmp_path,
            logs=tmp_path,
        ),
        candidates=[],
        evidence=Evidence(measure_until=60.0, step_ns=1e6),
        deadline=100.0,
        place=lambda: tmp_path,
    )
    assert 100 <= run.kill_at() < 106
    run.evidence.preparing = True
    assert 60 <= run.kill_at() < 66
