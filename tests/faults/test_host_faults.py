"""Faults of the host's side: each seen where it is, sized by hand, and not seen where it is not."""

import msgspec
import numpy as np
import pytest

from boundby.faults import (
    collector_pauses,
    openmp_spin,
    pageable_copies,
    recompilation,
    zeroed_gradients,
)
from boundby.model import DeviceKind, HostKind, OpCall, Overheads
from boundby.model.host_counters import HostCounters, ThreadTime
from boundby.step.pauses import shares
from tests.faults.step_models import at_line, finding, step_model_of, sure
from tests.machines import roof, round_machine
from tests.step.test_replay import GELU, PRODUCT, scene_of
from tests.timelines import Scene, tensor

PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
LINKED = msgspec.structs.replace(
    round_machine(), roofs=[*round_machine().roofs, roof("host_link.h2d", 5e10, "B/s")]
)
COPY = OpCall(name="aten::copy_", args=(tensor(1000, 10_000), tensor(1000, 10_000)))
MS = 1e6


def copying(memory: str) -> Scene:
    """40 MB to the device in 2,000 us, the host standing by; then a product of 138 us."""
    scene = Scene(end=2260)
    scene.on_host(0, 2040, call=COPY)
    kind = HostKind.SYNC if "Pageable" in memory else HostKind.LAUNCH
    copy = scene.on_host(10, 2020, kind, "cudaMemcpyAsync")
    scene.on_host(2021, 2035, HostKind.SYNC, "cudaStreamSynchronize")
    scene.on_device(15, 2015, DeviceKind.COPY_H2D, memory, launch=copy, size=40_000_000)
    scene.on_host(2040, 2120, call=PRODUCT)
    launch = scene.on_host(2118, 2120, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(2122, 2260, launch=launch)
    return scene


def test_pinned_copy_runs_at_link_rate_without_blocking_the_host() -> None:
    step_model = step_model_of(at_line(copying(PAGEABLE).timeline(), "train.py:7"), LINKED)
    found = sure(step_model, "pageable-copies")
    assert found.where == ["train.py:7"]
    # 40 MB at 95% of 50 GB/s: 842 us instead of 2,000. Then the device is the limit, with 842 +
    # 138 us and two gaps of 1.1, and all the rest of the 2,260 us is saved; hidden, 842 more.
    assert found.saving_ns.expected == pytest.approx((2260 - 842 - 140) * 1e3, rel=0.05)
    assert found.saving_ns.high == pytest.approx((2260 - 140) * 1e3, rel=0.05)


def test_pinned_copy_is_not_reported() -> None:
    step_model = step_model_of(copying("Memcpy HtoD (Pinned -> Device)").timeline(), LINKED)
    assert pageable_copies.detect(step_model) is None


def test_reading_a_value_is_not_a_pageable_copy() -> None:
    scene = Scene(end=300)
    copy = scene.on_host(0, 200, HostKind.SYNC, "cudaMemcpyAsync")
    name = "Memcpy DtoH (Device -> Pageable)"
    scene.on_device(10, 12, DeviceKind.COPY_D2H, name, launch=copy, size=4)
    assert pageable_copies.detect(step_model_of(scene.timeline(), LINKED)) is None


def zeroing(*, accumulated: int = 1, around: str = "Optimizer.zero_grad#SGD.zero_grad") -> Scene:
    """Two gradients of 40 MB zeroed in 10 us each and added to in 30, by a host that is ahead."""
    gradient = tensor(1000, 10_000)
    fill = OpCall(name="aten::fill_", args=(gradient, 0))
    add = OpCall(name="aten::add_", args=(gradient, gradient, 1))
    scene = Scene()
    clock, free = 0.0, 0.0
    rows = [(around, fill, 10.0)] * 2 + [("AccumulateGrad", add, 30.0)] * 2 * accumulated
    for name, call, device_us in [*rows, ("", PRODUCT, 138.0)]:
        scene.on_host(clock, clock + 5, HostKind.ANNOTATION, name)
        scene.on_host(clock, clock + 5, call=call)
        launch = scene.on_host(clock + 4, clock + 5, HostKind.LAUNCH, "launch")
        clock += 5
        begin = max(free, clock)
        scene.on_device(begin, begin + device_us, launch=launch)
        free = begin + device_us
    scene.end = free
    return scene


def test_zeroed_gradients_cost_a_fill_and_an_addition_each() -> None:
    found = sure(step_model_of(zeroing().timeline()), "zeroed-gradients")
    # 2 fills of 10 us and 2 additions of 30 us, with the gaps of 1.1 us before them; of the
    # additions a twentieth is expected to stay.
    assert found.saving_ns.high == pytest.approx(84.4e3, rel=0.02)
    assert found.saving_ns.expected == pytest.approx((22.2 + 0.95 * 60) * 1e3, rel=0.02)


def test_accumulated_gradients_save_one_addition() -> None:
    found = sure(step_model_of(zeroing(accumulated=4).timeline()), "zeroed-gradients")
    assert found.saving_ns.high == pytest.approx(84.4e3, rel=0.03)


def test_fills_outside_zero_grad_are_not_gradients() -> None:
    assert zeroed_gradients.detect(step_model_of(zeroing(around="zeros").timeline())) is None


@pytest.mark.parametrize(
    "around",
    [
        "Optimizer.zero_grad#SGD.zero_grad",
        "torch/nn/modules/module.py(2970): zero_grad",
        "/opt/python/site-packages/torch/optim/optimizer.py(1010): zero_grad",
    ],
)
def test_zero_grad_of_torch_is_advised_to_set_none(around: str) -> None:
    found = sure(step_model_of(zeroing(around=around).timeline()), "zeroed-gradients")
    assert found.change == "optimizer.zero_grad(set_to_none=True)"


def test_own_zero_grad_function_is_not_advised_to_set_none() -> None:
    timeline = zeroing(around="lion.py(14): zero_grad").timeline()
    found = sure(step_model_of(at_line(timeline, "lion.py:17")), "zeroed-gradients")
    assert found.change == "p.grad = None  # instead of zeros, at lion.py:17"


def test_zero_grad_of_another_library_is_named() -> None:
    """The line that zeroes is not one to be edited: it is inside the library."""
    around = "apex/optimizers/fused_adam.py(90): zero_grad"
    timeline = at_line(zeroing(around=around).timeline(), "train.py:9")
    host = msgspec.structs.replace(timeline.host, inside=np.ones(len(timeline.host), np.int32))
    sources = ["train.py:9", "apex/optimizers/fused_adam.py:93"]
    timeline = msgspec.structs.replace(timeline, host=host, sources=sources)
    found = sure(step_model_of(timeline), "zeroed-gradients")
    assert found.change == "optimizer.zero_grad(set_to_none=True)"


def paused(*pauses_ms: float, step_ms: float = 100.0, compiler: float = 0.0) -> HostCounters:
    count = len(pauses_ms)
    return HostCounters(
        steps_ns=(step_ms * MS,) * count,
        collector_ns=tuple(ms * MS for ms in pauses_ms),
        compiler_ns=(compiler,) * count,
    )


def on_cpu(wall_ms: float = 100.0) -> Scene:
    """A step of one small operator, so that all of its time is Python's."""
    scene = Scene(end=wall_ms * 1000)
    scene.on_host(0, 20, call=OpCall(name="aten::add", args=(tensor(64, 64), tensor(64, 64))))
    return scene


def test_pauses_in_every_step_are_removed() -> None:
    step_model = step_model_of(on_cpu().timeline(), host_counters=paused(*[20.0] * 10))
    found = sure(step_model, "collector-pauses")
    assert found.saving_ns.high == pytest.approx(20 * MS, rel=0.01)
    assert found.saving_ns.expected == pytest.approx(0.9 * 20 * MS, rel=0.01)


def test_pause_in_one_step_of_ten_is_uncertain() -> None:
    step_model = step_model_of(on_cpu().timeline(), host_counters=paused(50.0, *[0.0] * 9))
    found = sure(step_model, "collector-pauses")
    assert found.saving_ns.expected == 0
    # 50 of 1,000 ms went into it.
    assert found.saving_ns.high == pytest.approx(0.05 * 100 * MS, rel=0.01)


def test_pauses_hidden_by_device_work_cost_nothing() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=5).timeline()
    step_ms = timeline.wall_ns / MS
    behind = step_model_of(timeline, host_counters=paused(*[1.0] * 10, step_ms=step_ms))
    assert finding(behind, "collector-pauses") is None
    ahead = scene_of([(GELU, 5.0)] * 40, host_us=100).timeline()
    waiting = step_model_of(ahead, host_counters=paused(*[1.0] * 10, step_ms=4.0))
    # 1 of 4 ms a step, on a host that the device waits for.
    assert sure(waiting, "collector-pauses").saving_ns.high == pytest.approx(MS, rel=0.03)


def test_garbage_collection_of_the_compiler_is_not_reported() -> None:
    step_model = step_model_of(
        on_cpu().timeline(), host_counters=paused(*[20.0] * 10, compiler=1.0)
    )
    assert collector_pauses.detect(step_model) is None


def test_gc_collect_is_found_in_a_trace() -> None:
    scene = on_cpu()
    scene.on_host(50_000, 80_000, HostKind.PYTHON, "<built-in function collect>")
    found = sure(step_model_of(at_line(scene.timeline(), "train.py:9")), "collector-pauses")
    assert found.where == ["train.py:9"]
    assert found.saving_ns.high == pytest.approx(30 * MS, rel=0.01)


def scheduled(*, main: tuple[float, float], other: tuple[float, float]) -> HostCounters:
    """Ten steps of 100 ms; times in ms, on a core and without one."""
    (ran, delayed), (other_ran, other_delayed) = main, other
    return HostCounters(
        steps_ns=(100 * MS,) * 10,
        wall_ns=1000 * MS,
        main=ThreadTime(ran_ns=ran * MS, delayed_ns=delayed * MS),
        busiest=ThreadTime(ran_ns=other_ran * MS, delayed_ns=other_delayed * MS),
    )


def waiting_for_cores() -> Scene:
    """Ten operators of 10 ms that need 1 us each by their roofs."""
    scene = Scene(end=100_000)
    for start in range(0, 100_000, 10_000):
        scene.on_host(start, start + 9_990, call=OpCall(name="aten::relu", args=(tensor(100_000),)))
    return scene


def test_two_spinning_threads_on_one_core_are_advised_to_sleep() -> None:
    """Each was on the core for half of the time, and ready for it in the other half."""
    seen = scheduled(main=(500, 500), other=(500, 500))
    found = sure(step_model_of(waiting_for_cores().timeline(), host_counters=seen), "openmp-spin")
    # Half of the step, where both delays are the same; nearly all where they are not; at least
    # half of the half for which the main thread had no core.
    assert found.saving_ns.expected == pytest.approx(50 * MS, rel=0.02)
    assert found.saving_ns.high == pytest.approx(100 * MS, rel=0.02)
    assert found.saving_ns.low == pytest.approx(25 * MS, rel=0.02)


def test_cores_used_by_other_processes_are_not_attributed_to_spinning() -> None:
    """They had one core all the time, and our two threads were without one, on average."""
    seen = msgspec.structs.replace(
        scheduled(main=(500, 500), other=(500, 500)), others_ns=1000 * MS
    )
    found = sure(step_model_of(waiting_for_cores().timeline(), host_counters=seen), "openmp-spin")
    assert found.saving_ns.expected == pytest.approx(25 * MS, rel=0.02)
    assert found.saving_ns.low == 0


@pytest.mark.parametrize(
    ("main", "other"),
    [
        ((1000, 0), (1000, 0)),  # a core for each: spinning costs nothing
        ((600, 380), (350, 60)),  # the helper sleeps between operators
        ((990, 0), (940, 60)),  # it spins, and hardly ever needs another's core
    ],
)
def test_threads_that_sleep_or_have_cores_are_not_reported(
    main: tuple[float, float], other: tuple[float, float]
) -> None:
    seen = scheduled(main=main, other=other)
    step_model = step_model_of(waiting_for_cores().timeline(), host_counters=seen)
    assert openmp_spin.detect(step_model) is None


def test_saving_does_not_exceed_cpu_wait_time() -> None:
    seen = scheduled(main=(900, 100), other=(800, 200))
    found = sure(step_model_of(waiting_for_cores().timeline(), host_counters=seen), "openmp-spin")
    assert found.saving_ns.high == pytest.approx(30 * MS, rel=0.02)


def test_spinning_is_not_inferred_from_a_trace() -> None:
    assert openmp_spin.detect(step_model_of(waiting_for_cores().timeline())) is None


def test_threads_that_work_are_not_spinning() -> None:
    """1.37 s of float32 products by the roofs: both threads have every reason to want a core."""
    product = OpCall(name="aten::mm", args=(tensor(32768, 32768), tensor(32768, 32768)))
    scene = Scene(end=2_000_000)
    scene.on_host(0, 1_999_000, call=product)
    seen = scheduled(main=(500, 500), other=(500, 500))
    assert openmp_spin.detect(step_model_of(scene.timeline(), host_counters=seen)) is None


def test_recompiling_steps_are_averaged_over_all() -> None:
    """Five of ten steps take 300 ms longer than 100: 1.5 of 2.5 s."""
    seen = HostCounters(
        steps_ns=(400 * MS, 100 * MS) * 5,
        collector_ns=(0.0,) * 10,
        compiler_ns=(300 * MS, 0.0) * 5,
    )
    found = sure(step_model_of(on_cpu().timeline(), host_counters=seen), "recompilation")
    assert found.saving_ns.high == pytest.approx(0.6 * 100 * MS, rel=0.01)
    # Without the worst of them, 1.2 of 2.1 s.
    assert found.saving_ns.expected == pytest.approx(1.2 / 2.1 * 100 * MS, rel=0.01)
    assert "5 of 10" in found.assumes


def broken(breaks: int) -> Scene:
    """Compiled pieces of 50 us by a host that the device waits for."""
    scene = Scene()
    clock = 0.0
    for piece in range(breaks + 1):
        if piece:
            name = f"train.py({piece}): torch_dynamo_resume_in_forward_at_{piece}"
            scene.on_host(clock, clock + 50, HostKind.PYTHON, name)
        scene.on_host(clock, clock + 50, call=GELU)
        launch = scene.on_host(clock + 48, clock + 50, HostKind.LAUNCH, "launch")
        scene.on_device(clock + 50, clock + 60, launch=launch)
        clock += 50
    scene.end = clock + 10
    return scene


def test_graph_breaks_cost_an_entry_each() -> None:
    found = sure(step_model_of(broken(4).timeline()), "recompilation")
    # Four entries of 30 us, a half and four times as much; the step is 250 us of host time.
    assert found.saving_ns.low == pytest.approx(0.5 * 4 * 30e3, rel=0.1)
    assert found.where == ["train.py:1", "train.py:2", "train.py:3"]


def test_one_compiled_region_has_no_graph_breaks() -> None:
    assert recompilation.detect(step_model_of(broken(0).timeline())) is None


def test_share_of_a_pause_in_the_step() -> None:
    assert shares((), ()) == (0, 0, 0)
    assert shares([5.0], [10.0]) == (0.5, 0.5, 0.5)
    # 1 of 20 in all but the worst, which is less than the median's 1 of 10; 11 of 30 in all.
    assert shares([0.0, 10.0, 1.0], [10.0, 10.0, 10.0]) == (0.05, 0.05, 11 / 30)


def test_a_graph_closes_the_gaps_that_were_measured() -> None:
    """Forty kernels that the host is ahead of: gaps of 1 us, in a graph less than nothing."""
    timeline = scene_of([(GELU, 50.0)] * 40, host_us=5).timeline()
    machine = round_machine()
    gaps = Overheads(
        kernel_gap_ns=500, graph_gap_ns=500, long_kernel_gap_ns=1000, long_graph_gap_ns=-200
    )
    found = sure(
        step_model_of(timeline, msgspec.structs.replace(machine, overheads=gaps)), "eager-launches"
    )
    assert found.saving_ns.expected == pytest.approx(40 * 1200, rel=0.05)


def test_a_graph_is_no_faster_where_memory_is_set() -> None:
    """Ten of forty set memory for those that follow: of twenty kernels the gaps are closed."""
    timeline = scene_of([(GELU, 50.0)] * 40, host_us=5).timeline()
    kinds = timeline.device.kind.copy()
    kinds[:20:2] = DeviceKind.MEMSET
    device = msgspec.structs.replace(timeline.device, kind=kinds)
    gaps = Overheads(
        kernel_gap_ns=1000, graph_gap_ns=-200, long_kernel_gap_ns=1000, long_graph_gap_ns=-200
    )
    step_model = step_model_of(
        msgspec.structs.replace(timeline, device=device),
        msgspec.structs.replace(round_machine(), overheads=gaps),
    )
    assert sure(step_model, "eager-launches").saving_ns.expected == pytest.approx(
        20 * 1200, rel=0.05
    )


def test_a_step_that_syncs_in_the_middle_is_not_captured_whole() -> None:
    short = OpCall(name="aten::mm", args=(tensor(64, 64), tensor(64, 64)))
    whole = sure(
        step_model_of(scene_of([(short, 3.0)] * 40, host_us=20).timeline()), "eager-launches"
    )
    scene = scene_of([(short, 3.0)] * 20, host_us=20)
    scene.on_host(scene.end, scene.end + 5, HostKind.SYNC, "cudaStreamSynchronize")
    later = scene.end + 5
    for number in range(20):
        at = later + 20 * number
        launch = scene.on_host(at + 19, at + 20, HostKind.LAUNCH, "launch")
        scene.on_device(at + 21, at + 24, launch=launch)
    scene.end = later + 400
    broken = sure(step_model_of(scene.timeline()), "eager-launches")
    assert "syncs once in the middle" in broken.assumes
    assert broken.saving_ns.low == 0
    assert broken.saving_ns.expected < 0.7 * whole.saving_ns.expected


def test_a_graph_does_not_save_a_long_pause() -> None:
    """Loading or compiling before a launch is no dispatch of operators."""
    scene = scene_of([(GELU, 5.0)] * 20, host_us=20)
    at = scene.end + 100_000
    scene.on_host(scene.end, at, HostKind.OP, "aten::load_library")
    launch = scene.on_host(at, at + 5, HostKind.LAUNCH, "launch")
    scene.on_device(at + 6, at + 11, launch=launch)
    scene.end = at + 20
    saving = sure(step_model_of(scene.timeline()), "eager-launches").saving_ns
    assert 4e6 < saving.expected < 6e6 and saving.high < 3e7  # of 100 ms
