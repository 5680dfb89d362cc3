"""Needless recomputation in the backward, on constructed steps."""

import msgspec
import pytest

from boundby.faults import (
    wasteful_checkpointing,
)
from boundby.model import HostKind, Machine, Phase, Timeline
from boundby.model.host_counters import HostCounters
from boundby.step.device_ops import recomputed
from tests.faults.step_models import at_line, in_phase, step_model_of, sure
from tests.machines import round_machine
from tests.step.test_replay import GELU, PRODUCT, scene_of
from tests.timelines import Scene


def checkpointed(*, reentrant: bool = False) -> Timeline:
    """A product and a GELU in forward; both again in backward, before their own gradients."""
    scene = Scene(end=800)
    rows = [(0, PRODUCT), (10, GELU), (20, PRODUCT), (30, GELU), (40, PRODUCT)]
    free = 0.0
    if reentrant:
        scene.on_host(20, 50, HostKind.PYTHON, "torch/utils/checkpoint.py(300): backward")
    else:
        scene.on_host(20, 40, HostKind.PYTHON, "torch/utils/checkpoint.py(1111): unpack_hook")
    for start, call in rows:
        if start == 40:
            scene.on_host(40, 50, name="autograd::engine::evaluate_function: MmBackward0")
        scene.on_host(start, start + 10, call=call)
        launch = scene.on_host(start + 9, start + 10, HostKind.LAUNCH, "launch")
        begin = max(free, start + 10)
        free = begin + (138 if call is PRODUCT else 104)
        scene.on_device(begin, free, launch=launch)
    scene.host.sort(key=lambda row: (row[0], -row[1]))
    return _relinked(scene, free)


def _relinked(scene: Scene, end: float) -> Timeline:
    """Sorting moved the rows that device events refer to: find them by when they end."""
    ends = {row[1]: at for at, row in enumerate(scene.host) if row[2] is HostKind.LAUNCH}
    order = sorted(ends)
    device = sorted(scene.device)
    scene.device = [
        (*event[:5], ends[stop], event[6]) for event, stop in zip(device, order, strict=True)
    ]
    scene.end = end
    timeline = scene.timeline()
    first = next(at for at, row in enumerate(scene.host) if row[0] >= 20)
    return in_phase(timeline, Phase.BACKWARD, slice(first, None))


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_distinguished_from_backward(reentrant: bool) -> None:
    timeline = checkpointed(reentrant=reentrant)
    calls = recomputed(timeline) & (timeline.host.call >= 0)
    assert [timeline.names[name] for name in timeline.host.name[calls]] == [
        "aten::mm",
        "aten::gelu",
    ]


def with_memory(total: int | None) -> Machine:
    return msgspec.structs.replace(round_machine(), memory_bytes=total)


def test_recomputation_is_reported_if_memory_is_left() -> None:
    """The product's result is 32 MB, GELU's 256 MB: they fit, and 138 + 104 us are saved."""
    seen = HostCounters(peak_bytes=10**9)
    found = sure(
        step_model_of(checkpointed(), with_memory(2 * 10**9), seen), "wasteful-checkpointing"
    )
    assert found.saving_ns.expected == pytest.approx(242e3, rel=0.05)


def test_unknown_memory_expects_only_matmul_results_to_be_kept() -> None:
    found = sure(step_model_of(checkpointed()), "wasteful-checkpointing")
    assert found.saving_ns.expected == pytest.approx(138e3, rel=0.05)
    assert found.saving_ns.high == pytest.approx(242e3, rel=0.05)


def test_recomputation_needed_for_memory_is_not_reported() -> None:
    seen = HostCounters(peak_bytes=10**9)
    step_model = step_model_of(checkpointed(), with_memory(10**9), seen)
    assert wasteful_checkpointing.detect(step_model) is None


def test_step_without_checkpoints_has_no_recomputation() -> None:
    timeline = in_phase(scene_of([(PRODUCT, 138.0)] * 3, host_us=5).timeline(), Phase.BACKWARD)
    assert wasteful_checkpointing.detect(step_model_of(timeline)) is None


def test_second_forward_on_a_cpu_includes_python_and_dispatch() -> None:
    """Two operators of 250 us, 16 of them dispatch, and 150 us of Python around them."""
    scene = Scene(end=900)
    scene.on_host(0, 160, call=PRODUCT)
    scene.on_host(160, 400, call=GELU)
    scene.on_host(400, 800, HostKind.PYTHON, "torch/utils/checkpoint.py(1111): unpack_hook")
    scene.on_host(450, 550, call=PRODUCT)
    scene.on_host(600, 750, call=GELU)
    scene.on_host(800, 900, name="autograd::engine::evaluate_function: MmBackward0")
    scene.on_host(810, 890, call=PRODUCT)
    timeline = at_line(in_phase(scene.timeline(), Phase.BACKWARD, slice(2, None)), "model.py:3")
    found = sure(step_model_of(timeline, with_memory(16 * 10**9)), "wasteful-checkpointing")
    assert found.saving_ns.low == pytest.approx(92e3)
    assert found.saving_ns.expected == pytest.approx(400e3)


def test_low_cpu_memory_expects_only_matmul_results_to_be_kept() -> None:
    scene = Scene(end=1000)
    scene.on_host(400, 800, HostKind.PYTHON, "torch/utils/checkpoint.py(1111): unpack_hook")
    scene.on_host(450, 550, call=PRODUCT)
    scene.on_host(600, 750, call=GELU)
    timeline = in_phase(scene.timeline(), Phase.BACKWARD)
    found = sure(step_model_of(timeline, with_memory(10**9)), "wasteful-checkpointing")
    assert found.saving_ns.expected == pytest.approx(92e3, rel=0.1)
