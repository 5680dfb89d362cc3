"""Advice for a step that may not be typical."""

import pytest

from boundby.diagnosis.advice import Advice, advise, doubted, without_batches
from boundby.faults import batches
from boundby.model import Tensor
from boundby.model.estimate import Estimate
from boundby.model.finding import BatchRow, Finding, WhatIf
from tests.faults.step_models import step_model_of
from tests.faults.test_host_faults import scheduled, waiting_for_cores
from tests.step.test_dataflow import chain

MS = 1e6


def within(ms: float) -> Estimate:
    return Estimate(low=0.97 * ms * MS, expected=ms * MS, high=1.03 * ms * MS)


def test_uncertain_step_time_widens_all_savings() -> None:
    """40 of 100 ms are saved: perhaps none, perhaps 40% of the rest in addition."""
    finding = Finding(fault="host-sync", group="overhead", saving_ns=within(40), change="")
    what_if = WhatIf(faults=["host-sync"], wall_ns=within(60), saving_ns=within(40))
    wider = doubted(Advice(findings=[finding], what_if=[what_if]), 100 * MS)
    saving, wall = wider.findings[0].saving_ns, wider.what_if[0].wall_ns
    assert (saving.low, saving.expected, saving.high) == pytest.approx((0, 40 * MS, 64 * MS))
    assert (wall.low, wall.expected, wall.high) == pytest.approx((36 * MS, 60 * MS, 100 * MS))
    assert wider.what_if[0].saving_ns == saving


def test_no_fix_saves_more_than_the_step() -> None:
    """Nearly all of it at best; what processes differ by does not make it more than all."""
    seen = scheduled(main=(500, 500), other=(500, 500))
    step_model = step_model_of(waiting_for_cores().timeline(), host_counters=seen)
    savings = {one.fault: one.saving_ns for one in advise([step_model], None).findings}
    assert 0.99 * step_model.wall_ns < savings["openmp-spin"].high <= step_model.wall_ns


def test_larger_batches_are_predicted_without_benchmarks() -> None:
    steps = [("cos", (Tensor(shape=(64, 1024), dtype="float32", storage=1),), 2)]
    step_model = step_model_of(chain(*steps, on_device=False))
    rows = batches(step_model)
    assert [row.factor for row in rows] == [2, 4]
    assert all(row.wall_ns.low <= row.wall_ns.expected <= row.wall_ns.high for row in rows)
    assert not step_model.timings.requested


@pytest.mark.parametrize(
    ("factor", "expected", "low", "high"),
    [
        (2, 160, 128, 200),  # a fifth less a sample: perhaps nothing, perhaps that twice
        (4, 240, 144, 400),
        (2, 120, 100, 200),  # more samples never take less than fewer
        (2, 200, 0.97 * 200, 1.03 * 200),  # no gain, no doubt of it
        (2, 98, 0.97 * 98, 200),
    ],
)
def test_uncertain_step_time_widens_larger_batches(
    factor: int, expected: float, low: float, high: float
) -> None:
    row = BatchRow(factor=factor, wall_ns=within(expected))
    (wider,) = doubted(Advice(batches=[row]), 100 * MS).batches
    assert wider.factor == factor
    wall = wider.wall_ns
    assert (wall.low, wall.expected, wall.high) == pytest.approx(
        (low * MS, expected * MS, high * MS)
    )


def test_a_step_that_is_not_repeated_gets_no_advice_on_batches() -> None:
    larger = Finding(
        fault="batch-too-small",
        group="overhead",
        saving_ns=within(40),
        change="",
        relative_to="samples",
    )
    sync = Finding(fault="host-sync", group="overhead", saving_ns=within(40), change="")
    rows = [BatchRow(factor=2, wall_ns=within(100))]
    found = without_batches(Advice(findings=[sync, larger], batches=rows))
    assert found.findings == [sync] and not found.batches
