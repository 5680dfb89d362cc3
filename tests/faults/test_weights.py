"""Weights are recognised by the position in which operators take them, not by their size."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.faults import repeated_casts
from boundby.faults.batch_too_small import batches
from boundby.model import Allocations, DeviceKind, OpCall, Phase, Tensor, Timeline
from boundby.step.batch_invariant import batch_invariant_values, weights_of
from boundby.step.model import StepModel
from tests.faults.step_models import finding, in_phase, step_model_of
from tests.step.test_dataflow import chain
from tests.timelines import Scene

SIDE = 8192
HALF = "bfloat16"


def at(storage: int, *shape: int, dtype: str = HALF) -> Tensor:
    return Tensor(shape=shape or (SIDE, SIDE), dtype=dtype, storage=storage)


def weights(timeline: Timeline) -> set[int]:
    """The storages from before the step that are taken for weights."""
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    found = weights_of(step_model, flow)
    return {
        tensor.storage
        for index, given in enumerate(flow.arguments)
        if (call := step_model.call(step_model.op_records[index])) is not None
        for tensor, value in zip(call.tensors, given, strict=True)
        if value in found and tensor.storage is not None
    }


def factors(step_model: StepModel) -> list[float]:
    return [row.wall_ns.expected / step_model.wall_ns for row in batches(step_model)]


def test_batch_of_square_matmuls_is_not_a_weight() -> None:
    """1.1 TFLOP at 1 PFLOP/s each: twice the rows take twice as long."""
    timeline = chain(
        ("mm", (at(1), at(101)), 2),
        ("mm", (at(2), at(102)), 3),
        each_us=1100.0,
    )
    step_model = step_model_of(timeline)
    assert weights(timeline) == {101, 102}
    assert factors(step_model) == pytest.approx([2, 4], rel=0.05)
    assert finding(step_model, "batch-too-small") is None


def test_images_that_are_cast_first_still_grow_with_the_batch() -> None:
    """Half a gigabyte of images, cast, then convolved in 500 us each by a device that is busy."""
    images, cast = at(1, 64, 256, 56, 56, dtype="float32"), at(2, 64, 256, 56, 56)
    kernel = (256, 256, 3, 3)
    tail = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    timeline = chain(
        ("copy_", (cast, images), 2),
        ("convolution", (cast, at(101, *kernel), *tail), 3),
        ("convolution", (at(3, 64, 256, 56, 56), at(102, *kernel), *tail), 4),
        each_us=500.0,
    )
    step_model = step_model_of(timeline)
    assert weights(timeline) == {101, 102}
    assert factors(step_model) == pytest.approx([2, 4], rel=0.05)
    assert finding(step_model, "batch-too-small") is None


def test_broadcast_bias_grows_with_the_rows() -> None:
    """A product on a CPU adds to a copy of its bias: 8192 times as large as that."""
    bias = at(102, SIDE)
    spread = Tensor(shape=(SIDE, SIDE), dtype=HALF, strides=(0, 1), storage=102)
    timeline = chain(
        ("copy_", (at(2), spread), 2),
        ("mm", (at(1), at(101)), 3),
        ("addmm", (bias, at(3), at(101)), 4),
        each_us=1100.0,
    )
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    fixed = batch_invariant_values(step_model, flow)
    assert weights(timeline) == {101, 102}
    assert not fixed & set(flow.makes[flow.order[0]])


def test_accumulated_gradients_do_not_grow_with_the_batch() -> None:
    """Two products of gradients, each added to what the optimizer reads in the end."""
    timeline = chain(
        ("mm", (at(1), at(2)), 3),
        ("add_", (at(50), at(3)), 51),
        ("mm", (at(4), at(5)), 6),
        ("add_", (at(50), at(6)), 52),
        ("mul", (at(50), at(60)), 7),
    )
    rows = [row for row in range(len(timeline.host)) if timeline.host.call[row] >= 0]
    timeline = in_phase(timeline, Phase.OPTIMIZER, slice(rows[-1], None))
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    fixed = batch_invariant_values(step_model, flow)
    for index in flow.order:
        work = step_model.op_records[index]
        if work.name.endswith("::add_"):
            assert set(flow.reads[index]) <= fixed
        elif work.name.endswith("::mm"):
            assert flow.arguments[index][0] not in fixed


def test_images_from_the_host_are_not_weights() -> None:
    images = at(2, 64, 256, 56, 56)
    tail = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    timeline = chain(
        ("copy_", (images, at(1, 64, 256, 56, 56)), 2),
        ("convolution", (images, at(101, 256, 256, 3, 3), *tail), 3),
    )
    timeline.device.kind[0] = DeviceKind.COPY_H2D
    assert weights(timeline) == {101}


def test_addmm_input_is_not_a_weight() -> None:
    bias, rows = at(103, SIDE), at(1)
    timeline = chain(("addmm", (bias, rows, at(101)), 2), each_us=1100.0)
    assert weights(timeline) == {103, 101}


def test_cast_of_weight_counts_as_weight() -> None:
    """As autocast does in inference, for a weight and for the batch."""
    timeline = chain(
        ("copy_", (at(2), at(1, dtype="float32")), 2),
        ("copy_", (at(3), at(101, dtype="float32")), 3),
        ("mm", (at(2), at(3)), 4),
    )
    assert weights(timeline) == {101}


def test_weight_cast_in_every_step_is_recognised() -> None:
    """Casts of 110 us each; in a bfloat16 model only that of the batch."""
    batch = ("copy_", (at(2), at(1, dtype="float32")), 2)
    cast = ("copy_", (at(3), at(101, dtype="float32")), 3)
    mixed = step_model_of(chain(batch, cast, ("mm", (at(2), at(3)), 4)))
    detection = repeated_casts.detect(mixed)
    assert detection is not None
    flow = mixed.flow
    assert flow is not None
    assert set(detection.high.op_ns) == {flow.order[1]}
    assert detection.change == "model = model.to(torch.bfloat16)"
    assert repeated_casts.detect(step_model_of(chain(batch, ("mm", (at(2), at(101)), 4)))) is None


def test_batch_cast_in_training_is_not_a_weight() -> None:
    timeline = chain(
        ("copy_", (at(2), at(1, dtype="float32")), 2),
        ("mm", (at(2), at(101)), 3),
        ("add_", (at(101), at(3)), 101),
    )
    assert repeated_casts.detect(step_model_of(in_training(timeline, 1))) is None


def test_embedding_table_is_a_weight_in_both_uses() -> None:
    words, table = at(1, 4096, dtype="int64"), at(101, 32000, 1024)
    hidden = at(2, 4096, 1024)
    timeline = chain(
        ("embedding", (table, words), 2),
        ("native_layer_norm", (hidden, (1024,), at(102, 1024), at(103, 1024), 1e-5), 3),
        ("mm", (at(3, 4096, 1024), at(101, 1024, 32000)), 4),
    )
    assert weights(timeline) == {101, 102, 103}


def test_features_multiplied_with_themselves_are_samples() -> None:
    timeline = chain(
        ("mul", (at(1),), 2),
        ("copy_", (at(3), at(1)), 3),
        ("mm", (at(2), at(3)), 4),
    )
    assert weights(timeline) == set()


def test_attention_operands_are_samples_and_a_shared_matrix_is_a_weight() -> None:
    q, k = at(1, 64, 512, 64), at(2, 64, 64, 512)
    assert weights(chain(("bmm", (q, k), 3))) == set()
    shared = Tensor(shape=(64, 64, 512), dtype=HALF, strides=(0, 512, 1), storage=101)
    assert weights(chain(("bmm", (q, shared), 3))) == {101}


def in_training(timeline: Timeline, optimizer: int) -> Timeline:
    """The same step, whose last rows (two for each operator) are the optimizer's."""
    phase = timeline.host.phase.copy()
    phase[-2 * optimizer :] = Phase.OPTIMIZER
    return msgspec.structs.replace(
        timeline, host=msgspec.structs.replace(timeline.host, phase=phase)
    )


def test_updated_and_frozen_weights_are_recognised() -> None:
    """The second weight is updated; the first one is not, as under an adapter."""
    timeline = chain(
        ("mm", (at(1), at(101)), 2),
        ("mm", (at(2), at(102)), 3),
        ("mm", (at(2), at(3)), 4),  # the second's gradient, of two activations
        ("add_", (at(102), at(4)), 102),
    )
    assert weights(in_training(timeline, 1)) == {101, 102}


def test_left_multiplied_weight_is_recognised() -> None:
    timeline = chain(("mm", (at(101), at(1)), 2), ("add_", (at(101), at(2)), 101))
    assert weights(in_training(timeline, 1)) == {101}


@pytest.mark.parametrize("trained", [True, False])
def test_zeros_of_an_embedding_gradient_do_not_grow_with_the_batch(trained: bool) -> None:
    """They do where no optimizer reads what was made of them: then it may be anything."""
    table, gradient, rows = at(1), at(2), at(3, 64, 32)
    scene = Scene(end=300)
    backward = OpCall(name="aten::embedding_dense_backward", args=(rows, at(4, 64)))
    outer = scene.on_host(0, 100, call=backward)
    zeros = scene.on_host(10, 90, call=OpCall(name="aten::fill_", args=(gradient, 0.0)))
    update = scene.on_host(110, 200, call=OpCall(name="aten::add_", args=(table, gradient)))
    allocations = Allocations(
        row=np.array([outer], np.int32),
        storage=np.array([2], np.int64),
        bytes=np.array([gradient.bytes], np.int64),
    )
    timeline = msgspec.structs.replace(scene.timeline(), allocations=allocations)
    if trained:
        timeline = in_phase(timeline, Phase.OPTIMIZER, slice(update, None))
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    (filling,) = (index for index, work in enumerate(step_model.op_records) if work.row == zeros)
    assert (flow.makes[filling][0] in batch_invariant_values(step_model, flow)) is trained
