"""Pages that a CPU step returns to the system and allocates again."""

from typing import Any

import msgspec
import pytest

from boundby.faults import memory_given_back
from boundby.model import Tensor
from boundby.model.host_counters import HostCounters
from boundby.step.model import Edit, StepModel
from tests.faults.step_models import step_model_of
from tests.step.test_dataflow import chain

STEPS = 10
PAGES = 40
# Ten steps of 40 pages, 2 us each by what the system did, on two cores.
SEEN = HostCounters(
    steps_ns=(1e6,) * STEPS,
    wall_ns=1e6 * STEPS,
    fresh_pages=PAGES * STEPS,
    step_pages=(PAGES,) * STEPS,
    kept_pages=0,
    system_ns=2000.0 * PAGES * STEPS,
    fresh_page_ns=1000.0,
    cores=2,
)


def on_a_cpu(seen: HostCounters, *, on_device: bool = False, name: str = "cos") -> StepModel:
    given = [Tensor(shape=(1 << 20,), dtype="float32", storage=at) for at in (1, 2)]
    steps = [(name, (tensor,), at) for at, tensor in enumerate(given, 2)]
    return step_model_of(chain(*steps, each_us=500.0, on_device=on_device), host_counters=seen)


def saved(seen: HostCounters) -> float:
    step_model = on_a_cpu(seen)
    detection = memory_given_back.FAULT.find_in(step_model)
    assert detection is not None
    return step_model.base_ns - step_model.evaluate(detection.expected)


def is_said(seen: HostCounters, **given: Any) -> bool:
    return memory_given_back.FAULT.find_in(on_a_cpu(seen, **given)) is not None


def test_system_time_for_pages_is_saved() -> None:
    assert saved(SEEN) == pytest.approx(2000.0 * PAGES)


@pytest.mark.parametrize(("did", "each"), [(700.0, 700.0), (50_000.0, 8000.0)])
def test_page_cost_is_system_time_bounded_by_the_measured_cost(did: float, each: float) -> None:
    """The system does other things too, as for threads that look for work."""
    seen = msgspec.structs.replace(SEEN, system_ns=did * PAGES * STEPS)
    assert saved(seen) == pytest.approx(each * PAGES)


def test_page_faults_of_threads_run_in_parallel() -> None:
    seen = msgspec.structs.replace(SEEN, cores=8, system_ns=2 * SEEN.system_ns)
    assert saved(seen) == pytest.approx(2 / 8 * 4000.0 * PAGES)


def test_kept_pages_are_not_saved() -> None:
    half = msgspec.structs.replace(SEEN, kept_pages=PAGES * STEPS // 2)
    assert saved(half) == pytest.approx(1000.0 * PAGES)
    assert not is_said(msgspec.structs.replace(SEEN, kept_pages=PAGES * STEPS))


def test_pages_of_a_single_outlier_step_are_not_reported() -> None:
    """As after a fork, when all is copied that is written to."""
    assert not is_said(
        msgspec.structs.replace(SEEN, step_pages=(PAGES * STEPS, *(0,) * (STEPS - 1)))
    )


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(HostCounters(), id="no clean steps"),
        pytest.param(msgspec.structs.replace(SEEN, kept_pages=None), id="not Linux"),
        pytest.param(msgspec.structs.replace(SEEN, system_ns=0.0), id="nothing was done"),
    ],
)
def test_without_counters_nothing_is_reported(seen: HostCounters) -> None:
    assert not is_said(seen)


def test_device_steps_and_in_place_writes_are_not_reported() -> None:
    assert is_said(SEEN)
    assert not is_said(SEEN, on_device=True)
    assert not is_said(SEEN, name="cos_")


def test_removed_operators_need_no_pages() -> None:
    """One of two that made as much: half of the gain is left beside that."""
    step_model = on_a_cpu(SEEN)
    assert step_model.flow is not None
    without = step_model.apply(Edit(op_ns={step_model.flow.order[0]: 0.0}))
    detection = memory_given_back.FAULT.find_in(without)
    assert detection is not None
    saved = without.evaluate(Edit()) - without.evaluate(detection.expected)
    assert saved == pytest.approx(1000.0 * PAGES)
