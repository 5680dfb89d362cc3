"""The first lines of a report: how much of the run it is about, and what a step contains."""

from __future__ import annotations

import msgspec

from boundby.model.diagnosis import Diagnosis
from boundby.model.run import RunPart, RunPartName, RunParts
from boundby.model.step_kind import StepUnit
from boundby.report.header import unit_words
from boundby.report.terminal import as_text
from tests.diagnoses import bare_diagnosis


def part(name: RunPartName, seconds: float, where: str | None = None) -> RunPart:
    details = {} if where is None else {where: seconds * 1e9}
    return RunPart(name=name, ns=seconds * 1e9, share=seconds / 20, details=details)


def diagnosed(step_s: float, *parts: RunPart, unit: StepUnit | None = None) -> Diagnosis:
    """Of a run of 20 s, so many of which are in steps of the diagnosed kind."""
    diagnosis = bare_diagnosis()
    run = RunParts(wall_ns=20e9, parts=list(parts), step_share=step_s / 20, scope="the whole run")
    step = msgspec.structs.replace(diagnosis.step, unit=unit)
    return msgspec.structs.replace(diagnosis, run=run, step=step)


def test_small_share_of_the_run_is_stated_first() -> None:
    rollouts = part("rollout", 7, "ppo.py:42")
    unit = StepUnit(calls=2, backwards=1, updates=1)
    diagnosis = diagnosed(3, part("import", 10), rollouts, part("train", 3), unit=unit)
    first = " ".join(as_text(diagnosis).split("\n")[:2])
    assert first.startswith(
        "Only 30% of the run's time, without imports and set-up, is in the step"
    )
    assert "70% is rollouts, most of it at ppo.py:42 (--kind forward" in first


def test_step_that_dominates_the_run_has_no_share_line() -> None:
    diagnosis = diagnosed(8, part("import", 10), part("train", 8), part("eval", 2))
    assert "Only" not in as_text(diagnosis).split("\n")[0]


def test_contents_of_a_step_with_several_passes_are_stated() -> None:
    assert unit_words(StepUnit(calls=1, backwards=1, updates=1)) == ""
    assert unit_words(StepUnit(calls=4, backwards=4, updates=1)) == (
        "4 forward and backward passes, 1 update"
    )
    assert unit_words(StepUnit(calls=3, backwards=2, updates=2, evaluations=1)) == (
        "3 forward calls, 2 backward passes, 2 updates, 1 call without gradients"
    )
    unit = StepUnit(calls=4, backwards=4, updates=1)
    assert "(4 forward and backward passes, 1 update)" in " ".join(
        as_text(diagnosed(9, part("train", 9), unit=unit)).split()
    )
