"""Faults about parts of the run, on accounts that are made up."""

from __future__ import annotations

from types import ModuleType
from types import SimpleNamespace as Step

import pytest

from boundby.faults import (
    checkpoint_dominates,
    evaluation_dominates,
    recorded_evaluation,
    workers_restarted,
)
from boundby.faults.fault import Detection
from boundby.model.run import RunPart, RunParts


def detect(fault: ModuleType, unused_graphs: int = 0, **parts: RunPart) -> Detection | None:
    total = sum(part.ns for part in parts.values())
    found: Detection | None = fault.detect(
        Step(
            run=RunParts(wall_ns=total, parts=list(parts.values())),
            evidence=Step(unused_graphs=[None] * unused_graphs),
        )
    )
    return found


def part(name: str, ms: float, count: int = 1, **more: object) -> RunPart:
    return RunPart(name=name, ns=ms * 1e6, share=0.0, count=count, **more)  # type: ignore[arg-type]


TRAIN = part("train", 1000, 100)


def test_evaluation_as_long_as_training_is_found_at_its_line() -> None:
    found = detect(
        evaluation_dominates, train=TRAIN, eval=part("eval", 1000, 4, details={"a.py:7": 1e9})
    )
    assert found is not None and found.of_run_ns is not None
    assert found.where == ["a.py:7"]
    assert found.of_run_ns.expected == pytest.approx(0.9e9)
    assert "10 times less often" in found.change
    assert "4 times in 100 training steps" in found.evidence


def test_evaluation_of_a_fifth_of_the_run_is_not_reported() -> None:
    assert detect(evaluation_dominates, train=TRAIN, eval=part("eval", 250)) is None


@pytest.mark.parametrize(("count", "saved_ms"), [(50, 245.0), (20, None)])
def test_evaluation_after_every_few_steps_is_reported(count: int, saved_ms: float | None) -> None:
    """Of 100 training steps; one evaluation in 100 is left."""
    found = detect(evaluation_dominates, train=TRAIN, eval=part("eval", 250, count))
    assert (found is None) == (saved_ms is None)
    if found is not None and found.of_run_ns is not None and saved_ms is not None:
        assert found.of_run_ns.expected == pytest.approx(saved_ms * 1e6)
        assert "50 times less often" in found.change


def test_evaluation_with_gradients_is_found_unless_step_evidence_shows_it() -> None:
    evaluated = part("eval", 400, 4, recorded_ns=200e6, details={"a.py:7": 400e6})
    found = detect(recorded_evaluation, train=TRAIN, eval=evaluated)
    assert found is not None and found.of_run_ns is not None
    assert found.where == ["a.py:7"]
    assert 0 < found.of_run_ns.expected < 100e6
    assert detect(recorded_evaluation, train=TRAIN, eval=part("eval", 400, 4)) is None
    assert detect(recorded_evaluation, 1, train=TRAIN, eval=evaluated) is None


def test_inference_run_has_no_evaluation_finding() -> None:
    assert detect(evaluation_dominates, eval=part("eval", 1000)) is None


def test_unknown_run_has_no_run_findings() -> None:
    for fault in (evaluation_dominates, checkpoint_dominates, workers_restarted):
        assert fault.detect(Step(run=None)) is None


def test_checkpoints_of_a_tenth_of_training_are_reported() -> None:
    found = detect(checkpoint_dominates, train=TRAIN, checkpoint=part("checkpoint", 100, 50))
    assert found is not None and found.of_run_ns is not None
    assert found.of_run_ns.expected == pytest.approx(90e6)
    assert "10 times less often" in found.change
    assert detect(checkpoint_dominates, train=TRAIN, checkpoint=part("checkpoint", 20, 1)) is None


def test_restarted_workers_cost_all_but_the_first_start() -> None:
    start = part("data_start", 400, 4, repeated_ns=300e6, details={"t.py:5": 400e6})
    found = detect(workers_restarted, train=TRAIN, data_start=start)
    assert found is not None and found.of_run_ns is not None
    assert found.where == ["t.py:5"]
    assert 0.5 * 300e6 < found.of_run_ns.expected < 300e6
    once = part("data_start", 400, 1, details={"t.py:5": 400e6})
    assert detect(workers_restarted, train=TRAIN, data_start=once) is None
