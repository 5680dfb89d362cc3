"""What holds something for each sample with each other one grows with the square of the batch."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.faults.batch_too_small import batches
from boundby.model import Allocations, Argument, OpCall, Tensor, Timeline
from boundby.step.batch_growth import LIKELY, Alone, costliest, grown_ns, in_step_ns, times_with
from boundby.step.op_variants import doubled
from boundby.step.quadratic_in_batch import quadratic_values
from tests.faults.step_models import step_model_of
from tests.step.test_dataflow import chain

SAMPLES, WIDTH = 4096, 64
Step = tuple[str, tuple[Argument, ...], int]


def at(storage: int, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype, strides=(*shape[1:], 1), storage=storage)


def turned(tensor: Tensor) -> Tensor:
    return msgspec.structs.replace(
        tensor, shape=tensor.shape[::-1], strides=(tensor.strides or ())[::-1]
    )


IMAGES, TEXTS = at(1, SAMPLES, 128), at(2, SAMPLES, 128)
WEIGHTS = at(7, 128, WIDTH), at(8, 128, WIDTH)
SEEN, READ = at(3, SAMPLES, WIDTH), at(4, SAMPLES, WIDTH)
TOWERS = ("mm", (IMAGES, WEIGHTS[0]), 3), ("mm", (TEXTS, WEIGHTS[1]), 4)
SIMILAR, LIKELIHOODS = at(10, SAMPLES, SAMPLES), at(11, SAMPLES, SAMPLES)
LABELS = Tensor(shape=(SAMPLES,), dtype="int64", strides=(1,), storage=5)
ALL_WITH_ALL = ("mm", (SEEN, turned(READ)), 10)
LOSS = (
    ("_log_softmax", (SIMILAR, 1, False), 11),
    ("nll_loss_forward", (LIKELIHOODS, LABELS, None, 1, -100), 12),
)


def contrasting(*steps: Step) -> Timeline:
    """The two towers, and what is done with what they make."""
    timeline = chain(*TOWERS, *steps)
    square, rows = 4 * SAMPLES**2, 4 * SAMPLES * WIDTH
    sizes = {3: rows, 4: rows, 10: square, 11: square, 12: 4, 13: square, 14: rows, 15: 4}
    allocations = timeline.allocations
    assert allocations is not None
    return msgspec.structs.replace(
        timeline,
        allocations=Allocations(
            row=allocations.row,
            storage=allocations.storage,
            bytes=np.array([sizes[int(made)] for made in allocations.storage], np.int64),
        ),
    )


def squares_of(timeline: Timeline) -> list[str]:
    """The operators that make a value which grows with the square."""
    step_model = step_model_of(timeline)
    flow = step_model.flow
    assert flow is not None
    found = quadratic_values(step_model)
    return [step_model.op_records[flow.values[value].maker].name for value in sorted(found)]


def test_samples_with_samples_and_what_is_made_of_them() -> None:
    assert squares_of(contrasting(ALL_WITH_ALL, *LOSS)) == ["aten::mm", "aten::_log_softmax"]


def test_what_multiplies_a_square_with_samples_makes_none() -> None:
    """As in the way back: for each sample there is a row of the product."""
    back = ("mm", (SIMILAR, READ), 14)
    assert squares_of(contrasting(ALL_WITH_ALL, back)) == ["aten::mm"]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(("mm", (SEEN, at(9, WIDTH, SAMPLES)), 10), id="as many classes as samples"),
        pytest.param(("mm", (turned(SEEN), READ), 14), id="a weight's gradient"),
        pytest.param(
            ("bmm", (at(3, 64, 64, WIDTH), at(4, 64, WIDTH, 64)), 10), id="within each sample"
        ),
        pytest.param(
            ("mm", (at(3, WIDTH, SAMPLES), turned(at(4, WIDTH, SAMPLES))), 14),
            id="channels with channels",
        ),
    ],
)
def test_what_is_no_square(step: Step) -> None:
    assert squares_of(contrasting(step)) == []


def test_a_weight_that_is_cast_to_where_samples_were_is_a_weight() -> None:
    """As compiled code does, in memory that it uses again; there are as many rows as samples."""
    weight, cast = at(20, SAMPLES, WIDTH), msgspec.structs.replace(READ, dtype="bfloat16")
    product = ("mm", (SEEN, turned(cast)), 10)
    assert squares_of(contrasting(product)) == ["aten::mm"]
    assert (
        squares_of(contrasting(("triton_poi_fused__to_copy_9", (weight, cast), 15), product)) == []
    )
    named = "triton_poi_fused__to_copy_mul_9"  # as much, and whatever was there, perhaps
    assert squares_of(contrasting((named, (weight, cast), 15), product)) == ["aten::mm"]


def test_both_axes_are_doubled_and_so_are_the_labels() -> None:
    loss = OpCall(name="aten::nll_loss_forward", args=LOSS[1][1])
    grown = doubled(loss, [True, True], {SIMILAR.shape})
    twice = 2 * SAMPLES
    assert [tensor.shape for tensor in grown.tensors] == [(twice, twice), (twice,)]
    back = doubled(
        OpCall(name="aten::mm", args=(turned(SIMILAR), READ)), [True] * 2, {SIMILAR.shape}
    )
    assert [tensor.shape for tensor in back.tensors] == [(twice, twice), (twice, WIDTH)]
    assert back.tensors[0].strides == (1, twice)


def test_they_are_timed_so_and_go_on_so() -> None:
    """Twice the batch takes four times as long, four times the batch sixteen times."""
    step_model = step_model_of(contrasting(ALL_WITH_ALL, *LOSS))
    (index,) = (
        i for i, work in enumerate(step_model.op_records) if work.name == "aten::_log_softmax"
    )
    pairs = {indices[0]: pair for pair, indices in costliest(step_model, 2).items()}
    single, double = pairs[index]
    assert double.args[0].shape == (2 * SAMPLES, 2 * SAMPLES)  # type: ignore[union-attr]
    step_model.timings.known.update(
        {single: step_model.op_records[index].ns, double: 4.0 * step_model.op_records[index].ns}
    )
    for factor in (2, 4):
        grown = times_with(step_model, factor, LIKELY)[index]
        assert grown == pytest.approx(factor**2 * step_model.op_records[index].ns)


def test_by_the_curves_they_grow_with_the_square_too() -> None:
    """Of the towers each takes twice as long, at most; of what follows four times, but the sum."""
    plain, square = (
        batches(step_model_of(contrasting(step, *LOSS)))[0].wall_ns.expected
        for step in (("mm", (SEEN, at(9, WIDTH, SAMPLES)), 10), ALL_WITH_ALL)
    )
    assert square > 1.4 * plain


@pytest.mark.parametrize(
    ("twice_ns", "four_times_ns"),
    [
        (100.0, 100.0),
        (250.0, 850.0),  # 50 for being there, 50 for each two: 50 + 16 * 50
        (400.0, 1600.0),
        (500.0, 2000.0),  # it outgrew a cache, once
    ],
)
def test_growth_with_the_square_goes_on_as_it_began(twice_ns: float, four_times_ns: float) -> None:
    assert grown_ns(100.0, twice_ns, 2, degree=2) == pytest.approx(twice_ns)
    assert grown_ns(100.0, twice_ns, 4, degree=2) == pytest.approx(four_times_ns)


def test_four_times_as_long_is_no_outgrown_cache() -> None:
    alone, grown = Alone(10.0, 10.0), Alone(38.0, 38.0)
    assert in_step_ns(30.0, alone, grown, most=4.0) == pytest.approx(114.0)
    assert in_step_ns(30.0, alone, grown, most=2.0) == pytest.approx(60.0)
