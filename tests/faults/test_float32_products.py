"""Each kind of product has a line of its own: a finding promises what its lines reach."""

import msgspec
import pytest
import torch

from boundby import faults
from boundby.analysis.account import attribute_step
from boundby.model import HostKind, OpCall, Precision, Tensor
from boundby.model.finding import Finding
from boundby.step.build import build_step_model
from tests.faults.step_models import finding, step_model_of
from tests.machines import roof, round_machine
from tests.step.test_replay import scene_of
from tests.timelines import Scene, tensor

MACHINE = msgspec.structs.replace(
    round_machine(), roofs=[*round_machine().roofs, roof("matmul.tf32", 5e14)]
)
PRODUCT = OpCall(name="aten::mm", args=(tensor(4096, 4096), tensor(4096, 4096)))
IMAGES = (tensor(64, 256, 64, 64), tensor(256, 256, 3, 3))
CUDNN = OpCall(name="aten::cudnn_convolution", args=(*IMAGES, (1, 1), (1, 1), (1, 1), 1))
ONEDNN = OpCall(name="aten::mkldnn_convolution", args=(*IMAGES, None, (1, 1), (1, 1), (1, 1), 1))
WEIGHTS = (tensor(2048, 512), tensor(2048, 512), tensor(2048), tensor(2048))
STATES = (tensor(1, 64, 512), tensor(1, 64, 512))
SEQUENCES = (tensor(50, 64, 512), *WEIGHTS, *STATES)
LSTM = OpCall(
    name="aten::mkldnn_rnn_layer",
    args=(*SEQUENCES, False, (), 2, 512, 1, True, False, False),
)
CUDNN_LSTM = OpCall(
    name="aten::_cudnn_rnn",
    args=(SEQUENCES[0], WEIGHTS, 4, None, *STATES, 2, 512, 0, 1, False, 0.0, True, False),
)


def on_cuda(precision: Precision, layer: tuple[OpCall, float] = (CUDNN, 6300.0)) -> Finding | None:
    """A product of 2.75 ms by its float32 roof and a convolution of 6.2 ms."""
    timeline = scene_of([(PRODUCT, 2800.0), layer], host_us=5).timeline()
    wall = float(timeline.wall_ns)
    attribution = attribute_step(timeline, MACHINE, wall_ns=wall, precision=precision)
    step_model = build_step_model(timeline, MACHINE, attribution, wall_ns=wall, phases={})
    return finding(step_model, "float32-products")


def test_convolutions_have_their_own_setting_on_cuda() -> None:
    both = on_cuda(Precision(products="float32", convolutions="float32"))
    products = on_cuda(Precision(products="float32", convolutions="tf32"))
    convolutions = on_cuda(Precision(products="tf32", convolutions="float32"))
    assert both is not None
    assert products is not None
    assert convolutions is not None
    switch, precision = "cudnn.allow_tf32 = True", 'set_float32_matmul_precision("high")'
    assert switch in both.change
    assert precision in both.change
    assert switch not in products.change
    assert precision not in convolutions.change
    assert switch in convolutions.change
    assert on_cuda(Precision(products="tf32", convolutions="tf32")) is None


def test_recurrent_layers_use_the_convolution_setting_on_cuda() -> None:
    """Both are cuDNN's; by its float32 roof the LSTM takes 270 us."""
    precision = Precision(products="tf32", recurrent="float32")
    found = on_cuda(precision, (CUDNN_LSTM, 300.0))
    assert found is not None
    assert found.change == "torch.backends.cudnn.allow_tf32 = True"


@pytest.mark.parametrize("unreached", [ONEDNN, LSTM])
def test_cpu_convolutions_and_lstms_are_unaffected(unreached: OpCall) -> None:
    """oneDNN's convolutions and LSTMs stay in float32 at any precision of products."""

    def found(*calls: OpCall) -> Finding | None:
        scene = Scene(end=7000 * len(calls))
        for at, call in enumerate(calls):
            scene.on_host(7000 * at, 7000 * at + 6900, call=call)
        return finding(step_model_of(scene.timeline(), MACHINE), "float32-products")

    alone, beside = found(PRODUCT), found(PRODUCT, unreached)
    assert alone is not None
    assert beside is not None
    assert beside.saving_ns == alone.saving_ns
    assert found(unreached) is None


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="LSTMs are oneDNN's where it is there"
)
def test_torch_lstm_is_bit_equal_at_any_matmul_precision() -> None:
    lstm, given = torch.nn.LSTM(64, 128), torch.randn(10, 16, 64)
    before = torch.get_float32_matmul_precision()
    try:
        results = []
        for precision in ("highest", "medium"):
            torch.set_float32_matmul_precision(precision)
            results.append(lstm(given)[0])
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(*results)


def test_cpu_matmul_is_benchmarked_at_reduced_precision() -> None:
    """In float32, which the units round for themselves: converting is part of its time."""
    scene = Scene(end=7000)
    scene.on_host(0, 6900, call=PRODUCT)
    step_model = step_model_of(scene.timeline(), MACHINE)
    assert finding(step_model, "float32-products") is not None
    asked = [one for one in step_model.timings.requested if one.name == PRODUCT.name]
    kinds = {(one.args[0].dtype, one.loose) for one in asked if isinstance(one.args[0], Tensor)}
    assert {("float32", False), ("float32", True)} <= kinds


FUSED = "aten::_scaled_dot_product_flash_attention_for_cpu"
HEADS, SUMS = tensor(4, 8, 1024, 64), tensor(4, 8, 1024)


@pytest.mark.parametrize("fault", ["float32-products", "float32-activations"])
def test_slower_reduced_precision_is_not_reported(fault: str) -> None:
    """A CPU's fused attention was seen to take four times as long: it outweighs the products."""

    def found(other_digits: float) -> Finding | None:
        scene = Scene(end=20000)
        scene.on_host(0, 6900, call=PRODUCT)
        heads = (HEADS, HEADS, HEADS)
        scene.on_host(7000, 12000, call=OpCall(name=FUSED, args=(*heads, 0.0, True)))
        scene.on_host(
            12000,
            19900,
            call=OpCall(name=f"{FUSED}_backward", args=(HEADS, *heads, HEADS, SUMS, 0.0, True)),
        )
        step_model = step_model_of(scene.timeline(), MACHINE)
        finding(step_model, fault)
        for one in step_model.timings.requested:
            given = [arg for arg in one.args if isinstance(arg, Tensor)]
            # The sums over scores are never cast: no kernel takes them.
            assert all(arg.dtype == "float32" for arg in given if arg.shape == SUMS.shape)
            altered = one.loose or given[0].dtype == "bfloat16"
            faster = 0.2 if one.name == PRODUCT.name else other_digits
            step_model.timings.results[one] = 1e6 * faster if altered else 1e6
        return finding(step_model, fault)

    assert found(0.5) is not None
    assert found(4.0) is None


def test_attention_is_predicted_at_the_new_matmul_precision() -> None:
    scores, narrow = tensor(32, 1024, 1024), tensor(32, 1024, 64)
    scene = Scene(end=40000)
    for at, call in enumerate(
        (
            OpCall(name="aten::bmm", args=(narrow, tensor(32, 64, 1024))),
            OpCall(name="aten::_softmax", args=(scores, -1, False)),
            OpCall(name="aten::bmm", args=(scores, narrow)),
        )
    ):
        scene.on_host(10000 * at, 10000 * at + 9900, call=call)
    step_model = step_model_of(scene.timeline(), MACHINE)
    faults.find([step_model])
    for one in step_model.timings.requested:
        first = one.args[0]
        is_cast = isinstance(first, Tensor) and first.dtype == "bfloat16"
        slower = {"attention": 30e6 if one.loose or is_cast else 5e6}
        step_model.timings.results[one] = slower.get(
            one.name, 0.5e6 if one.loose or is_cast else 1e6
        )
    rows = {
        tuple(row.faults): row for row in faults.combine([step_model], faults.find([step_model]))
    }
    alone = rows["materialised-attention",].wall_ns
    assert alone.expected < 0.5 * step_model.wall_ns
    for fault in ("float32-products", "float32-activations"):
        together = rows[fault, "materialised-attention"].wall_ns
        assert together.expected == pytest.approx(alone.expected + 25e6)


def test_autocast_does_not_change_the_loader() -> None:
    """The same pointwise operator in the model, or in the loader of the main process."""

    def saved_ns(*, loads: bool) -> float:
        scene = Scene(end=20000)
        if loads:
            scene.on_host(0, 10000, HostKind.DATA, "enumerate(DataLoader)#__next__")
        scene.on_host(0, 9900, call=OpCall(name="aten::div", args=(tensor(4096, 4096), 2.0)))
        scene.on_host(10000, 19900, call=PRODUCT)
        step_model = step_model_of(scene.timeline(), MACHINE)
        faults.find([step_model])
        for one in step_model.timings.requested:
            first = one.args[0]
            is_cast = isinstance(first, Tensor) and first.dtype == "bfloat16"
            step_model.timings.results[one] = 1e6 if is_cast else 5e6
        found = finding(step_model, "float32-activations")
        assert found is not None and found.saving_ns is not None
        return found.saving_ns.high

    assert saved_ns(loads=True) < saved_ns(loads=False)
