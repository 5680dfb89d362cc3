"""Operators are timed on the units that the step itself uses."""

from __future__ import annotations

import msgspec
import pytest

from boundby.faults import batch_too_small, float32_activations, layout_copies
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import OpCall, Tensor
from boundby.step.model import StepModel
from boundby.step.op_variants import doubled, grown
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
    return {(dtype_of(one), one.loose) for one in step_model.timings.asked}


def dtype_of(one: OpBenchmark) -> str:
    (first, *_) = one.args
    assert isinstance(first, Tensor)
    return first.dtype


def test_a_convolution_in_tf32_is_held_against_bfloat16_as_it_runs() -> None:
    step_model = convolving()
    float32_activations.detect(step_model)
    assert asked(step_model) == {("float32", True), ("bfloat16", False)}
    for one in step_model.timings.asked:
        step_model.timings.known[one] = 600e3 if one.loose else 240e3
    detection = float32_activations.detect(step_model)
    assert detection is not None
    first, *rest = detection.expected.op_ns.values()
    assert rest == pytest.approx([0.4 * 600e3] * 3)
    # The first one carries the casts: 1.5 x 205 MB a convolution, at 5 TB/s, and some weights.
    assert first == pytest.approx(0.4 * 600e3 + 4 * 1.5 * 205.5 / 5 * 1e3, rel=0.02)


@pytest.mark.parametrize(("dtype", "loose"), [("float32", True), ("bfloat16", False)])
def test_layouts_and_larger_batches_are_timed_on_the_same_units(dtype: str, loose: bool) -> None:
    turned, grown = convolving(dtype), convolving(dtype)
    layout_copies.detect(turned)
    batch_too_small.detect(grown)
    assert len(turned.timings.asked) == len(grown.timings.asked) == 2
    assert asked(turned) == asked(grown) == {(dtype, loose)}


def test_products_off_the_matrix_units_are_timed_off_them() -> None:
    product = OpCall(
        name="aten::mm",
        args=(Tensor(shape=(4096, 4096), dtype="float32"),) * 2,
    )
    step_model = step_model_of(scene_of([(product, 2750.0)] * 4, host_us=5).timeline(), MACHINE)
    float32_activations.detect(step_model)
    assert asked(step_model) == {("float32", False), ("bfloat16", False)}


def shapes(call: OpCall) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    return [(tensor.shape, tensor.strides) for tensor in call.tensors]


def test_queries_keys_and_values_in_one_memory_grow_in_their_samples() -> None:
    """Three lie slowest in the memory that is copied, and samples in what it is copied to."""
    there = Tensor(shape=(64, 9, 3, 12), dtype="bfloat16", strides=(324, 36, 12, 1))
    here = Tensor(shape=(64, 9, 3, 12), dtype="bfloat16", strides=(108, 12, 6912, 1))
    grown = doubled(OpCall(name="aten::copy_", args=(there, here, False)), [True, True])
    assert shapes(grown) == [
        ((128, 9, 3, 12), (324, 36, 12, 1)),
        ((128, 9, 3, 12), (108, 12, 13824, 1)),
    ]


def test_a_weight_that_is_broadcast_to_the_samples_is_broadcast_to_twice_as_many() -> None:
    token = Tensor(shape=(64, 1, 768), dtype="float32", strides=(0, 768, 1))
    patches = Tensor(shape=(64, 196, 768), dtype="bfloat16", strides=(150528, 1, 196))
    grown = doubled(OpCall(name="aten::cat", args=((token, patches), 1)), [False, True])
    assert shapes(grown) == [
        ((128, 1, 768), (0, 768, 1)),
        ((128, 196, 768), (150528, 1, 196)),
    ]


def test_one_sample_becomes_two() -> None:
    """What it is added to, a weight of the same shape, is broadcast to both."""
    image = Tensor(shape=(1, 3, 8, 4), dtype="float32", strides=(96, 1, 12, 3))
    weight = Tensor(shape=(16, 3, 3, 3), dtype="float32", strides=(27, 9, 3, 1))
    grown = doubled(OpCall(name="aten::conv2d", args=(image, weight, None)), [True, False])
    assert shapes(grown) == [((2, 3, 8, 4), (96, 1, 12, 3)), ((16, 3, 3, 3), (27, 9, 3, 1))]
    places = Tensor(shape=(1, 128, 768), dtype="float32", strides=(98304, 768, 1))
    grown = doubled(OpCall(name="aten::add", args=(places, places, 1)), [True, False])
    assert [shape for shape, _ in shapes(grown)] == [(2, 128, 768), (1, 128, 768)]
    # Without its strides, and one number for each sample.
    labels = Tensor(shape=(1,), dtype="int64")
    logits = Tensor(shape=(1, 1000), dtype="float32")
    grown = doubled(OpCall(name="aten::nll_loss_forward", args=(logits, labels)), [True, True])
    assert [shape for shape, _ in shapes(grown)] == [(2, 1000), (2,)]


def state(*shape: int) -> Tensor:
    return Tensor(shape=shape, dtype="float32")


@pytest.mark.parametrize("first", [False, True])
def test_twice_the_sequences_of_a_recurrent_layer_are_as_long_as_before(first: bool) -> None:
    """Sixteen of 40 steps: on a CPU time comes first, whatever the script says."""
    weights = (state(512, 128), state(512, 128), state(512), state(512))
    told = (False, (), 2, 128, 1, True, False, first, True)
    states = state(16, 128), state(16, 128)
    layer = OpCall(
        name="aten::mkldnn_rnn_layer", args=(state(40, 16, 128), *weights, *states, *told)
    )
    grown = [shape for shape, _ in shapes(doubled(layer, [True] * 7))]
    assert grown == [(40, 32, 128), (512, 128), (512, 128), (512,), (512,), (32, 128), (32, 128)]
    x, more = (state(16, 40, 8), (32, 40, 8)) if first else (state(40, 16, 8), (40, 32, 8))
    rest = (None, state(2, 16, 9), None, 2, 9, 0, 2, first, 0.0, True, False, (), None)
    layers = OpCall(name="aten::_cudnn_rnn", args=(x, (state(36, 8), state(36, 9)), 4, *rest))
    grown = [shape for shape, _ in shapes(doubled(layers, [True] * 4))]
    assert grown == [more, (36, 8), (36, 9), (2, 32, 9)]
    packed = OpCall(name="aten::_cudnn_rnn", args=(state(640, 8), (state(36, 8),), 4, *rest))
    assert doubled(packed, [True] * 3) == packed


@pytest.mark.parametrize("samples", [1, 8])
def test_operators_that_are_told_the_number_of_samples_are_told_twice_as_many(
    samples: int,
) -> None:
    images = Tensor(shape=(samples, 6, 4, 4), dtype="float32", strides=(96, 16, 4, 1))
    scale = Tensor(shape=(6,), dtype="float32", strides=(1,))
    call = OpCall(
        name="aten::native_group_norm", args=(images, scale, scale, samples, 6, 16, 2, 1e-5)
    )
    grown = doubled(call, [True, False, False])
    assert shapes(grown)[0][0] == (2 * samples, 6, 4, 4)
    assert grown.args[3:] == (2 * samples, 6, 16, 2, 1e-5)
    large = Tensor(shape=(samples, 6, 8, 8), dtype="float32", strides=(384, 64, 8, 1))
    name = "aten::upsample_bilinear2d_backward"
    backward = OpCall(name=name, args=(large, (8, 8), (samples, 6, 4, 4), False, None, None))
    assert doubled(backward, [True]).args[2] == (2 * samples, 6, 4, 4)
    # Six of something else: the weight's gradient, whose rows are no samples.
    weight = OpCall(name=name, args=(large, (8, 8), (samples + 1, 6, 4, 4), False, None, None))
    assert doubled(weight, [True]).args[2] == (samples + 1, 6, 4, 4)


def test_attention_and_batched_products_have_the_samples_foremost() -> None:
    """As torch's own layer lays them out: samples and heads behind the tokens in memory."""
    heads, tokens, width = 32, 64, 16
    query = Tensor(shape=(heads, tokens, width), dtype="float32", strides=(16, 512, 1))
    key = Tensor(shape=(heads, width, tokens), dtype="float32", strides=(16, 1, 512))
    scores = doubled(OpCall(name="aten::bmm", args=(query, key)), [True, True])
    assert shapes(scores) == [((64, 64, 16), (16, 1024, 1)), ((64, 16, 64), (16, 1, 1024))]
    apart = Tensor(shape=(8, 4, tokens, width), dtype="float32", strides=(64, 16, 512, 1))
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    together = grown(OpCall(name=name, args=(apart, apart, apart, 0.0)), 4, [True] * 3)
    assert {shape for shape, _ in shapes(together)} == {(32, 4, tokens, width)}


def test_gradients_of_experts_are_added_up_over_more_rows() -> None:
    grads = Tensor(shape=(4, 128, 256), dtype="float32", strides=(128, 1, 512))
    rows = Tensor(shape=(4, 256, 64), dtype="float32", strides=(64, 256, 1))
    product = doubled(OpCall(name="aten::bmm", args=(grads, rows)), [True, True])
    assert [shape for shape, _ in shapes(product)] == [(4, 128, 512), (4, 512, 64)]
    # As compiled code calls it, told where to write.
    out = Tensor(shape=(4, 128, 64), dtype="float32", strides=(8192, 64, 1))
    told = doubled(OpCall(name="aten::bmm", args=(grads, rows, out)), [True, True, True])
    assert [shape for shape, _ in shapes(told)][:2] == [(4, 128, 512), (4, 512, 64)]
