"""Operators are timed on the units that the step itself uses."""

from __future__ import annotations

import msgspec
import pytest

from boundby.faults import float32_activations, layout_copies
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import OpCall, Tensor
from boundby.step.model import StepModel
from tests.faults.step_models import step_model_of
from tests.machines import roof, round_machine
from tests.step.test_dataflow import chain
from tests.step.test_replay import scene_of

MACHINE = msgspec.structs.replace(
    round_machine(), roofs=[*round_machine().roofs, roof("matmul.tf32", 5e14)]
)
TAIL = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)


def images(storage: int, dtype: str = "float32") -> Tensor:
    shape = (64, 256, 56, 56)
    return Tensor(shape=shape, dtype=dtype, strides=(802816, 3136, 56, 1), storage=storage)


def kernel(storage: int, dtype: str = "float32") -> Tensor:
    strides = (2304, 9, 3, 1)
    return Tensor(shape=(256, 256, 3, 3), dtype=dtype, strides=strides, storage=storage)


def convolving(dtype: str = "float32") -> StepModel:
    """Float32 convolutions, which torch runs on the tf32 units: 237 GFLOP each in 600 us."""
    steps = [
        ("convolution", (images(at, dtype), kernel(100 + at, dtype), *TAIL), at + 1)
        for at in range(1, 5)
    ]
    return step_model_of(chain(*steps, each_us=600.0), MACHINE)


def asked(step_model: StepModel) -> set[tuple[str, bool]]:
    """The dtype and the units of every operator that is to be timed."""
    return {(dtype_of(one), one.loose) for one in step_model.timings.requested}


def dtype_of(one: OpBenchmark) -> str:
    (first, *_) = one.args
    assert isinstance(first, Tensor)
    return first.dtype


def test_tf32_convolution_is_compared_with_bfloat16() -> None:
    step_model = convolving()
    float32_activations.detect(step_model)
    assert asked(step_model) == {("float32", True), ("bfloat16", False)}
    for one in step_model.timings.requested:
        step_model.timings.results[one] = 600e3 if one.loose else 240e3
    detection = float32_activations.detect(step_model)
    assert detection is not None
    first, *rest = detection.expected.op_ns.values()
    assert rest == pytest.approx([0.4 * 600e3] * 3)
    # The first one carries the casts: 1.5 x 205 MB a convolution, at 5 TB/s, and some weights.
    assert first == pytest.approx(0.4 * 600e3 + 4 * 1.5 * 205.5 / 5 * 1e3, rel=0.02)


@pytest.mark.parametrize(("dtype", "loose"), [("float32", True), ("bfloat16", False)])
def test_layouts_are_benchmarked_at_the_precision_of_the_step(dtype: str, loose: bool) -> None:
    turned = convolving(dtype)
    layout_copies.detect(turned)
    assert len(turned.timings.requested) == 2
    assert asked(turned) == {(dtype, loose)}


def test_matmuls_outside_matrix_units_are_benchmarked_there() -> None:
    product = OpCall(
        name="aten::mm",
        args=(Tensor(shape=(4096, 4096), dtype="float32"),) * 2,
    )
    step_model = step_model_of(scene_of([(product, 2750.0)] * 4, host_us=5).timeline(), MACHINE)
    float32_activations.detect(step_model)
    assert asked(step_model) == {("float32", False), ("bfloat16", False)}


def shapes(call: OpCall) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    return [(tensor.shape, tensor.strides) for tensor in call.tensors]


def state(*shape: int) -> Tensor:
    return Tensor(shape=shape, dtype="float32")
