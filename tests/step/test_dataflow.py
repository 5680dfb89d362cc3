"""Producers and consumers of values, and the saving of fusing them: the arithmetic by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.faults import unfused_operators
from boundby.model import Allocations, Argument, HostKind, OpCall, Phase, Tensor, Timeline
from boundby.step.build import build_step_model
from boundby.step.dataflow import OUTSIDE, flow_of
from boundby.step.fusion_groups import chains_of
from boundby.step.model import StepModel
from tests.machines import round_machine
from tests.timelines import Scene

ELEMENTS = 64 * 2**20
BYTES = 4 * ELEMENTS


def at(storage: int, dtype: str = "float32", shape: tuple[int, ...] = (ELEMENTS,)) -> Tensor:
    return Tensor(shape=shape, dtype=dtype, storage=storage)


def chain(
    *steps: tuple[str, tuple[Argument, ...], int], each_us: float = 110.0, on_device: bool = True
) -> Timeline:
    """Operators one after the other; each reads some tensors and makes one storage."""
    scene = Scene(end=(each_us + 5) * len(steps))
    clock = 0.0
    rows = []
    for name, tensors, _ in steps:
        generated = name.startswith("triton_")
        call = OpCall(name=name if generated else f"aten::{name}", args=tensors)
        rows.append(scene.on_host(clock, clock + (5 if on_device else each_us), call=call))
        if on_device:
            launch = scene.on_host(clock + 1, clock + 2, HostKind.LAUNCH, "cudaLaunchKernel")
            scene.on_device(clock + 4, clock + 4 + each_us, launch=launch)
        clock += each_us + 5
    allocations = Allocations(
        row=np.array(rows, np.int32),
        storage=np.array([made for _, _, made in steps], np.int64),
        bytes=np.full(len(steps), BYTES, np.int64),
    )
    return msgspec.structs.replace(scene.timeline(), allocations=allocations)


def step_model_of(timeline: Timeline) -> StepModel:
    machine = round_machine()
    wall = float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    return build_step_model(timeline, machine, attribution, wall_ns=wall, phases={})


def chain_of(count: int) -> Timeline:
    return chain(*(("cos", (at(index + 1),), index + 2) for index in range(count)))


def test_operator_reads_results_of_its_producer() -> None:
    step_model = step_model_of(chain_of(3))
    flow = step_model.flow
    assert flow is not None
    makers = [flow.makers[index] for index in flow.order]
    assert makers == [set(), {flow.order[0]}, {flow.order[1]}]
    first = flow.values[next(iter(flow.reads[flow.order[0]]))]
    assert first.maker == OUTSIDE and first.bytes == BYTES


def test_inner_operators_precede_their_caller() -> None:
    """As addmm does it on a CPU: the bias is copied into its result, which it then adds to."""
    rows, weight, bias, made = at(1), at(2), at(3), at(4)
    scene = Scene(end=300)
    product = OpCall(name="aten::addmm", args=(bias, rows, weight))
    outer = scene.on_host(0, 100, call=product)
    scene.on_host(10, 30, call=OpCall(name="aten::copy_", args=(made, bias)))
    scene.on_host(110, 200, call=OpCall(name="aten::gelu", args=(made,)))
    allocations = Allocations(
        row=np.array([outer], np.int32),
        storage=np.array([4], np.int64),
        bytes=np.array([BYTES], np.int64),
    )
    step_model = step_model_of(msgspec.structs.replace(scene.timeline(), allocations=allocations))
    flow = step_model.flow
    assert flow is not None
    names = [step_model.op_records[index].name for index in flow.order]
    assert names == ["aten::copy_", "aten::addmm", "aten::gelu"]
    copied, multiplied, gelu = flow.order
    assert flow.makers[gelu] == {multiplied}
    assert flow.makers[multiplied] == {copied}


def test_matmul_with_out_argument_produces_it() -> None:
    """As compiled code calls it: the buffer was taken outside, and the bias is copied there."""
    rows, weight, bias, made = at(1), at(2), at(3), at(4)
    scene = Scene(end=400)
    taken = scene.on_host(0, 5)
    scene.on_host(10, 100, call=OpCall(name="aten::addmm", args=(bias, rows, weight, 1, 1, made)))
    scene.on_host(20, 40, call=OpCall(name="aten::copy_", args=(made, bias)))
    scene.on_host(110, 200, call=OpCall(name="aten::mm", args=(made, weight, at(5))))
    allocations = Allocations(
        row=np.array([taken], np.int32),
        storage=np.array([4], np.int64),
        bytes=np.array([BYTES], np.int64),
    )
    step_model = step_model_of(msgspec.structs.replace(scene.timeline(), allocations=allocations))
    flow = step_model.flow
    assert flow is not None
    copied, added, multiplied = flow.order
    assert flow.makers[added] == {copied}
    assert flow.makers[multiplied] == {added}
    assert len(flow.makes[multiplied]) == 1
    # It is not read: its earlier content is unused.
    assert [value is None for value in flow.arguments[multiplied]] == [False, False, True]


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_fused_chain_of_k_operators_saves_k_minus_one_of_k_of_its_traffic(count: int) -> None:
    """k operators move 2k tensors; fused, one is read. The last result is not read here."""
    steps = [("cos", (at(index + 1),), index + 2) for index in range(count)]
    reader = ("mm", (at(count + 1, shape=(8192, 8192)), at(99, shape=(8192, 8192))), 100)
    step_model = step_model_of(chain(*steps, reader))
    flow = step_model.flow
    assert flow is not None
    (fused,) = [c for c in chains_of(step_model, flow) if len(c.op_records) > 1]
    before = sum(cost.bytes for i in fused.op_records if (cost := step_model.op_records[i].cost))
    assert before == 2 * count * BYTES
    assert fused.bytes == 2 * BYTES
    assert 1 - fused.bytes / before == pytest.approx((count - 1) / count)


def test_fusion_on_a_cpu_saves_traffic_but_not_arithmetic() -> None:
    steps = [("cos", (at(index + 1),), index + 2) for index in range(4)]
    step_model = step_model_of(chain(*steps, each_us=508.0, on_device=False))
    detection = unfused_operators.detect(step_model)
    assert detection is not None
    # Of 500 us each, without 8 us of dispatch, 107.4 are two tensors at 5 TB/s.
    kernels_us = 4 * (500 - 2 * BYTES / 5e6)
    assert sum(detection.expected.op_ns.values()) == pytest.approx(kernels_us * 1e3, rel=0.001)
    assert sum(detection.low.op_ns.values()) == pytest.approx(4 * 500e3)
    assert sum(detection.high.op_ns.values()) == pytest.approx(250e3)


def test_chain_interrupted_by_a_matmul_is_not_fused() -> None:
    square = (8192, 8192)
    timeline = chain(
        ("cos", (at(1, shape=square),), 2),
        ("mm", (at(2, shape=square), at(9, shape=square)), 3),
        ("cos", (at(3, shape=square),), 4),
        ("add", (at(4, shape=square), at(2, shape=square)), 5),
    )
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    fused = [c.op_records for c in chains_of(step_model, flow) if len(c.op_records) > 1]
    # The first cos and the add share a value, but the product is between them.
    assert fused == [[flow.order[2], flow.order[3]]]


@pytest.mark.parametrize("name", ["sort", "topk", "multinomial", "nonzero"])
def test_chain_interrupted_by_a_sort_is_not_fused(name: str) -> None:
    """A chain ends before it and begins again behind it; its own time stays."""
    logits = (64, 131072)
    timeline = chain(
        ("div", (at(1, shape=logits), 2.0), 2),
        ("relu", (at(2, shape=logits),), 3),
        (name, (at(3, shape=logits), -1), 4),
        ("_softmax", (at(4, shape=logits), -1, False), 5),
        ("mul", (at(5, shape=logits), 2.0), 6),
        each_us=3000.0,
    )
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    first, second, between, *rest = flow.order
    fused = [c.op_records for c in chains_of(step_model, flow) if len(c.op_records) > 1]
    assert fused == [[first, second], rest]
    detection = unfused_operators.detect(step_model)
    assert detection is not None and between not in detection.high.op_ns


def test_reused_memory_is_another_value() -> None:
    timeline = chain(("cos", (at(1),), 2), ("sin", (at(2),), 3), ("exp", (at(3),), 2))
    flow = flow_of(timeline, step_model_of(timeline).op_records)
    assert flow is not None
    second, third = flow.order[1], flow.order[2]
    (kept,) = flow.makes[third]
    assert kept not in flow.reads[second]


def test_dataflow_is_unknown_without_addresses() -> None:
    timeline = msgspec.structs.replace(chain_of(2), allocations=None)
    assert step_model_of(timeline).flow is None


def test_doubled_batch_of_an_overhead_bound_step_is_free() -> None:
    from boundby.faults.batch_too_small import batches
    from tests.step.test_replay import GELU, scene_of

    idle = step_model_of(scene_of([(GELU, 20.0)] * 10, host_us=400).timeline())
    (double, _) = batches(idle)
    assert double.wall_ns.expected == pytest.approx(idle.wall_ns, rel=0.02)
    busy = step_model_of(scene_of([(GELU, 104.0)] * 10, host_us=5).timeline())
    (double, four) = batches(busy)
    assert double.wall_ns.expected == pytest.approx(2 * busy.wall_ns, rel=0.05)
    assert four.wall_ns.expected == pytest.approx(4 * busy.wall_ns, rel=0.05)


def test_weights_do_not_grow_with_the_batch() -> None:
    """One row against 64 Mi weights: twice the rows read the same weights once."""
    from boundby.faults.batch_too_small import batches

    weights = Tensor(shape=(8192, 8192), dtype="bfloat16", storage=7)
    row = Tensor(shape=(1, 8192), dtype="bfloat16", storage=1)
    timeline = chain(("mm", (row, weights), 2), each_us=30.0)
    step_model = step_model_of(timeline)
    (double, _) = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(step_model.wall_ns, rel=0.02)
    assert step_model.op_records[0].phase == Phase.FORWARD


def test_larger_batch_is_as_uncertain_as_the_host_time() -> None:
    from boundby.faults.batch_too_small import batches
    from tests.step.test_replay import GELU, scene_of

    slow, usual, fast = (
        step_model_of(scene_of([(GELU, 20.0)] * 10, host_us=host).timeline())
        for host in (480, 400, 320)
    )
    (double, _) = batches(usual, fast, slow)
    assert double.wall_ns.low == pytest.approx(fast.wall_ns, rel=0.02)
    assert double.wall_ns.high == pytest.approx(slow.wall_ns, rel=0.02)
    assert double.saving_ns is not None
    assert double.saving_ns.expected == pytest.approx(usual.wall_ns, rel=0.02)
    assert double.saving_ns.high >= 0.98 * slow.wall_ns
