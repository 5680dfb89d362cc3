"""One script, started for real: sites are recorded, and a variant that ends it is blamed."""

import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from boundby.capture.process.execution import Target
from boundby.model.proof import Outcome
from boundby.prove import live_run
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence
from boundby.prove.launch import ProcessResult, Setting
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


def test_variant_that_ends_the_script_is_blamed(tmp_path: Path) -> None:
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
    ruled = evidence.rulings["planted/broken-backward",]
    assert ruled.outcome is Outcome.FAILED
    assert ruled.why == "MemoryError: planted: no memory in backward"
    assert ruled.log is not None and "Traceback" in Path(ruled.log).read_text()
    # The script was started again, and the other fix was measured.
    assert ("unfused-optimizer/fused",) in evidence.preparation_s
    sites = evidence.sites
    assert sites is not None
    assert sites.executed == {str(script): [1, 2, 3, 4, 5, 6, 7, 8, 9]}
    (optimizer,) = sites.optimizers
    assert (optimizer.type_name, optimizer.made[0].line) == ("AdamW", 3)
    assert [site.line for site in sites.forward_calls] == [5]
    assert [site.line for site in sites.backward_calls] == [7]
    assert [site.line for site in sites.optimizer_steps] == [8]


def test_first_use_is_stopped_when_no_time_is_left_to_measure(tmp_path: Path) -> None:
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
    # A script that has not reached its steps is not waited for.
    run.evidence = Evidence()
    assert run.kill_at() == 100


def _process(
    folder: Path, evidence: Evidence, running: str, steps: int, ended: str
) -> ProcessResult:
    """What is left of a process that failed after these steps."""
    evidence = msgspec.structs.replace(
        evidence, running=(running,) * bool(running), steps=evidence.steps + steps, ended=ended
    )
    return ProcessResult(
        problem=None,
        late=False,
        log=folder / "live.log",
        result=msgspec.msgpack.encode(evidence),
        written_files=[],
    )


@pytest.mark.parametrize(
    ("failures", "outcomes"),
    [
        # The script fails at its 12th step with any variant.
        ([("a/x", 12, "bad"), ("b/y", 12, "bad")], {}),
        ([("a/x", 12, "bad"), ("", 12, "bad")], {}),
        # The first fix fails: the script gets past its step. The second may have.
        (
            [("a/x", 12, "no bfloat16"), ("b/y", 20, "no bfloat16"), ("", 9, "bad")],
            {"a/x": Outcome.FAILED, "b/y": Outcome.INCONCLUSIVE},
        ),
    ],
)
def test_script_failure_is_not_blamed_on_a_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: list[tuple[str, int, str]],
    outcomes: dict[str, Outcome],
) -> None:
    left = iter(failures)

    def launched(_: Setting, spec: dict[str, Any], **options: Any) -> ProcessResult:
        result = _process(tmp_path, spec["evidence"], *next(left))
        assert result.result is not None
        options["follow"](result.result)
        return result

    monkeypatch.setattr(live_run, "launch", launched)
    run = LiveRun(
        setting=Setting(
            target=Target(name="train.py", args=[], is_module=False), folder=tmp_path, logs=tmp_path
        ),
        candidates=[],
        evidence=Evidence(),
        deadline=time.monotonic() + 600,
        place=lambda: tmp_path,
    )
    run.run()
    assert run.problem == "bad"
    ruled = {key: one.outcome for (key,), one in run.evidence.rulings.items()}
    assert ruled == outcomes
    assert next(left, None) is None


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_fix_that_was_measured_before_is_not_skipped_for_its_next_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    evidence = Evidence(running=("a/x",), preparing=True)
    evidence.comparison_of(("a/x",), ()).log_ratios.extend([0.1] * rounds)
    late = ProcessResult(
        problem=None, late=True, log=tmp_path / "live.log", result=None, written_files=[]
    )
    monkeypatch.setattr(live_run, "launch", lambda *_, **__: late)
    run = LiveRun(
        setting=Setting(
            target=Target(name="train.py", args=[], is_module=False), folder=tmp_path, logs=tmp_path
        ),
        candidates=[],
        evidence=evidence,
        deadline=time.monotonic() + 600,
        place=lambda: tmp_path,
    )
    run.run()
    assert bool(run.evidence.rulings) == (rounds == 0)


def test_ended_script_reports_why_it_is_not_restarted(tmp_path: Path) -> None:
    why = "the script ended after 60 steps"
    run = LiveRun(
        setting=Setting(
            target=Target(name="train.py", args=[], is_module=False), folder=tmp_path, logs=tmp_path
        ),
        candidates=[],
        evidence=Evidence(script_ended=True, ended=why, start_s=44.0),
        deadline=time.monotonic() + 20,
        place=lambda: tmp_path,
    )
    process = _process(tmp_path, run.evidence, "", 60, why)
    assert not run._may_continue(process, 60)
    assert re.fullmatch(
        rf"{why}; \d+ s are too few to start it again \(44 s\)", run.evidence.ended or ""
    )
