"""What is tried, and what a replay promises for it."""

from itertools import combinations

import pytest
from msgspec.structs import replace

from boundby.faults import FAULTS
from boundby.fixes.fix import Scope
from boundby.model import Roof
from boundby.model.diagnosis import Diagnosis
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding, WhatIf
from boundby.prove.candidate import Candidate
from boundby.prove.candidates import (
    Choice,
    candidates_of,
    candidates_without_diagnosis,
    dominant_start_fixes,
    predicted_speedup,
)
from boundby.prove.diagnosing import undiagnosed
from tests.diagnoses import real_diagnosis

# As a step of BERT on an H200 had them, in ms: of the seventh no combination is imagined.
SAVINGS = {
    "unfused-operators": 14.9,
    "materialised-attention": 7.9,
    "unfused-optimizer": 2.6,
    "repeated-casts": 1.8,
    "eager-launches": 0.7,
    "logits-materialised": 0.3,
    "wasted-tiles": 0.0,
}
WALL, COMBINED = 36.3, list(SAVINGS)[:6]
COMPILED = {"unfused-operators", "repeated-casts", "wasted-tiles"}


def bert(*, without: str = "") -> Diagnosis:
    real = real_diagnosis()
    found = [name for name in SAVINGS if name != without]
    combined = [name for name in COMBINED if name != without]
    return replace(
        real,
        machine=replace(real.machine, kind="cuda"),
        step=replace(real.step, wall_ns=WALL * 1e6),
        findings=[
            Finding(
                fault=name,
                group="bandwidth",
                saving_ns=Estimate(
                    low=0.0, expected=SAVINGS[name] * 1e6, high=SAVINGS[name] * 1e6 + 4e5
                ),
                change="",
            )
            for name in found
        ],
        what_if=[
            WhatIf(faults=list(some), wall_ns=exactly(WALL - sum(SAVINGS[one] for one in some)))
            for count in range(len(combined) + 1)
            for some in combinations(combined, count)
        ],
    )


def exactly(ms: float) -> Estimate:
    return Estimate(low=ms * 1e6, expected=ms * 1e6, high=ms * 1e6)


def tried(diagnosis: Diagnosis) -> dict[str, Candidate]:
    found = candidates_of(diagnosis, Choice())
    return {one.key.partition("/")[2]: one for one in found}


def test_uncombined_fault_does_not_reduce_expected_gain_of_others() -> None:
    found = tried(bert())
    compiled, graphed = found["compile"].predicted, found["compile:reduce-overhead"].predicted
    assert compiled is not None
    assert graphed is not None
    assert compiled.expected == pytest.approx(WALL / (WALL - 14.9 - 1.8))
    assert graphed.expected == pytest.approx(WALL / (WALL - 14.9 - 1.8 - 0.7))
    # What is left out may still save, at best, what it would alone.
    assert compiled.high == pytest.approx(WALL / (WALL - 14.9 - 1.8 - 0.4))
    assert compiled.low == compiled.expected


def test_combined_gain_is_predicted() -> None:
    found = tried(bert())
    together = predicted_speedup(
        bert(),
        {
            fault
            for one in ("compile:reduce-overhead", "sdpa", "fused")
            for fault in found[one].covers
        },
    )
    assert together is not None
    saved = sum(SAVINGS[one] for one in COMBINED if one != "logits-materialised")
    assert together.expected == pytest.approx(WALL / (WALL - saved))


def test_fix_without_prediction_has_no_expected_gain() -> None:
    alone = replace(bert(), what_if=[])
    assert predicted_speedup(alone, COMPILED) is None
    assert predicted_speedup(alone, {"unfused-operators"}) is not None
    assert predicted_speedup(bert(), {"openmp-spin"}) is None


def test_graphs_are_tried_for_a_device_bound_step() -> None:
    """A step that is bound by its device may be bound by its host once it is compiled."""
    found = tried(bert(without="eager-launches"))
    assert found["compile:reduce-overhead"].predicted == found["compile"].predicted
    assert "unfused-operators" in found["compile:reduce-overhead"].faults
    assert "cuda-graphs" not in found


def test_cheap_fixes_are_tried_without_a_finding_after_those_with_one() -> None:
    diagnosis = replace(bert(without="unfused-optimizer"), findings=bert().findings[:1])
    found = candidates_of(diagnosis, Choice())
    without_finding = [one.fix for one in found if one.without_finding]
    assert {"sdpa", "fused", "autocast", "tf32", "no-checkpoints"} <= set(without_finding)
    assert [one.without_finding for one in found] == sorted(one.without_finding for one in found)
    assert not any(
        one.without_finding for one in candidates_of(diagnosis, Choice(only=["compile"]))
    )


def test_reduced_precision_is_not_tried_if_the_device_is_not_faster() -> None:
    diagnosis = bert()
    slow = [
        Roof(name=f"matmul.{dtype}", value=value, unit="flops/s", source="measured")
        for dtype, value in (("float32", 1e12), ("bfloat16", 1e11), ("tf32", 5e12))
    ]
    machine = replace(diagnosis.machine, roofs=slow)
    names = tried(replace(diagnosis, machine=machine))
    assert "autocast" not in names
    assert "tf32" in names


def test_fix_named_by_the_user_is_always_reported() -> None:
    diagnosis = replace(bert(), findings=[])
    for choice in (Choice(only=["sdpa"]), Choice(also=["sdpa"])):
        found = {one.fix: one for one in candidates_of(diagnosis, choice)}
        assert found["sdpa"].requested
        assert not found["sdpa"].without_finding


def test_start_fix_with_the_largest_gain_is_measured_first() -> None:
    def one(name: str, scope: Scope, gain: float) -> Candidate:
        return Candidate(
            key=f"fault/{name}",
            faults=("fault",),
            change="",
            scope=scope,
            predicted=Estimate(low=1.0, expected=gain, high=2 * gain),
        )

    workers, pinned, fused = one("w", "start", 2.4), one("p", "start", 1.05), one("f", "step", 1.1)
    assert dominant_start_fixes([fused, pinned, workers]) == [workers]
    assert dominant_start_fixes([one("f", "step", 3.0), workers]) == []
    assert dominant_start_fixes([pinned]) == []


def test_common_fixes_are_tried_first_without_a_diagnosis() -> None:
    usual = {fix.name for fault in FAULTS for fix in fault.fixes if fix.always_tried}
    found = candidates_without_diagnosis(undiagnosed(), Choice(also=["compile"]))
    assert found[0].fix == "compile" and found[0].requested
    is_usual = [one.fix in usual for one in found[1:]]
    assert any(is_usual) and not all(is_usual)
    assert is_usual == sorted(is_usual, reverse=True)
