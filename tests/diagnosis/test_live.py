"""The diagnosis of real captures whose circumstances the test makes worse."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.process.plan import Plan  # noqa: E402
from boundby.capture.torch.capture import Capture  # noqa: E402
from boundby.capture.torch.hooks import Hooks  # noqa: E402
from boundby.capture.torch.observe import observe  # noqa: E402
from boundby.capture.torch.recorder import Recorder  # noqa: E402
from boundby.diagnosis import diagnose  # noqa: E402
from boundby.model.host_counters import ThreadTime  # noqa: E402
from boundby.report.terminal import as_text  # noqa: E402
from tests.machines import round_machine  # noqa: E402


@pytest.fixture
def capture(tmp_path: Path) -> Iterator[Capture]:
    hooks = Hooks()
    hooks.install(torch)
    plan = Plan(warmup=2, clean=3, issue=2, profiled=2)
    recorder = Recorder(torch, plan=plan, step_by="auto", folder=tmp_path, on_done=lambda: None)
    hooks.watcher = recorder
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        model(torch.ones(32, 64)).mean().backward()
        optimizer.step()
    hooks.remove()
    yield recorder.capture()


def slowed(capture: Capture, *, cpu_wait_s: float = 0.0) -> Capture:
    """Clean steps a thousand times as long, a share of which the script had no core."""
    clean = {kind: [1000 * ns for ns in times] for kind, times in capture.clean.items()}
    main = ThreadTime(ran_ns=1e9, delayed_ns=cpu_wait_s * 1e9)
    host_counters = msgspec.structs.replace(capture.host_counters, main=main, wall_ns=1e9)
    return dataclasses.replace(capture, clean=clean, host_counters=host_counters)


def test_profiled_step_faster_than_clean_steps_is_warned_about(capture: Capture) -> None:
    """Also with further doubts: the account is that of a step that was mostly not profiled."""
    diagnosis = diagnose(observe(slowed(capture, cpu_wait_s=0.66)), round_machine())
    assert diagnosis.verdict.uncertain
    assert "for 66% of the clean steps" in diagnosis.verdict.why
    assert "slow-clean-steps" in [note.code for note in diagnosis.notes]


def test_steps_that_only_waited_are_reported_as_unusable(
    capture: Capture,
) -> None:
    diagnosis = diagnose(observe(slowed(capture, cpu_wait_s=1.0)), round_machine())
    assert diagnosis.account.compute.ns == diagnosis.account.bandwidth.ns == 0
    assert diagnosis.verdict.uncertain
    assert "its operators and lines take is not known" in diagnosis.verdict.why


def test_verdict_names_the_bound_before_its_uncertainty(capture: Capture) -> None:
    diagnosis = diagnose(observe(slowed(capture)), round_machine())
    first = as_text(diagnosis).partition("\nStep ")[0]
    assert first.startswith("Overhead-bound (uncertain). With zero overhead ")
    assert " But clean steps took " in " ".join(first.split())
    assert not any(note.code == "slow-clean-steps" for note in diagnosis.notes)
