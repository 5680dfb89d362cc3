"""Each fault seen where it is, sized by hand, and not seen where it is not."""

import msgspec
import numpy as np
import pytest

from boundby import faults
from boundby.analysis.account import attribute_step
from boundby.faults import host_sync, materialised_attention, wasted_tiles
from boundby.model import Argument, HostKind, OpCall, Phase, Tensor, Timeline
from boundby.model.finding import Finding
from boundby.step.build import build_step_model
from tests.faults.step_models import finding, in_phase, sure
from tests.faults.test_contract import step_model_of
from tests.machines import roof, round_machine
from tests.step.test_replay import PRODUCT, scene_of
from tests.timelines import Scene, tensor


def found(scene: Scene, fault: str) -> Finding | None:
    findings = faults.find([step_model_of(scene.timeline())])
    return next((finding for finding in findings if finding.fault == fault), None)


def test_sync_between_two_halves_costs_the_shorter_side_of_each() -> None:
    """Host 100 us, device 138 us, twice, with a wait between: 476 us; without, the device's 276."""
    scene = Scene(end=476)
    for start in (0.0, 238.0):
        scene.on_host(start, start + 100, call=PRODUCT)
        launch = scene.on_host(start + 99, start + 100, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(start + 100, start + 238, launch=launch)
        scene.on_host(start + 101, start + 238, HostKind.SYNC, "cudaStreamSynchronize")
    finding = found(scene, "host-sync")
    assert finding is not None
    assert finding.saving_ns.high == pytest.approx(200e3, rel=0.05)
    assert finding.group == "overhead"


def test_step_without_syncs_has_no_host_sync_finding() -> None:
    scene = scene_of([(PRODUCT, 138.0)] * 3, host_us=5)
    assert host_sync.detect(step_model_of(scene.timeline())) is None


def test_float32_matmul_saving_follows_the_matrix_unit_rates() -> None:
    machine = msgspec.structs.replace(
        round_machine(), roofs=[*round_machine().roofs, roof("matmul.tf32", 5e14)]
    )
    product = OpCall(name="aten::mm", args=(tensor(4096, 4096), tensor(4096, 4096)))
    # 137 GFLOP at 50 TFLOP/s: 2.75 ms each; ten times faster on the tf32 units.
    timeline = scene_of([(product, 2750.0)] * 4, host_us=5).timeline()
    step_model = step_model_of(timeline)
    step_model.machine = machine
    (finding,) = [f for f in faults.find([step_model]) if f.fault == "float32-products"]
    assert finding.saving_ns.high == pytest.approx(0.9 * timeline.wall_ns, rel=0.02)


def test_host_bound_step_gains_nothing_from_tf32() -> None:
    machine = msgspec.structs.replace(
        round_machine(), roofs=[*round_machine().roofs, roof("matmul.tf32", 5e14)]
    )
    product = OpCall(name="aten::mm", args=(tensor(1024, 1024), tensor(1024, 1024)))
    step_model = step_model_of(scene_of([(product, 45.0)] * 10, host_us=400).timeline())
    step_model.machine = machine
    assert not [f for f in faults.find([step_model]) if f.fault == "float32-products"]


def test_a_per_parameter_adam_is_advised_to_fuse() -> None:
    big = tensor(64, 1_000_000)
    names = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_")
    rows = [(OpCall(name=f"aten::{name}", args=(big, big, big)), 150.0) for name in names]
    scene = scene_of(rows, host_us=10)
    timeline = scene.timeline()
    phase = timeline.host.phase.copy()
    phase[:] = 3
    host = msgspec.structs.replace(timeline.host, phase=phase)
    step_model = step_model_of(msgspec.structs.replace(timeline, host=host))
    (finding,) = [f for f in faults.find([step_model]) if f.fault == "unfused-optimizer"]
    # 64 M float32 parameters: 28 bytes each at 72% of 5 TB/s = 498 us of the 1,200 us.
    assert finding.saving_ns.expected == pytest.approx((1200 - 498) * 1e3, rel=0.1)
    assert finding.change.startswith("torch.optim.AdamW(..., fused=True)  # or Adam")
    for name, change in (
        ("Adam", "torch.optim.Adam(..., fused=True)"),
        ("MyAdam", "MyAdam(..., fused=True)"),
        ("RAdam", None),  # has no fused form
    ):
        step_model.timeline = msgspec.structs.replace(
            step_model.timeline, names=[*timeline.names, f"Optimizer.step#{name}.step"]
        )
        told = [f.change for f in faults.find([step_model]) if f.fault == "unfused-optimizer"]
        assert told == ([change] if change else [])


@pytest.mark.parametrize(
    ("optimizer", "operators", "bytes_per_parameter"),
    [
        ("SGD", ["_foreach_mul_", "_foreach_add_", "_foreach_add_"], 20),
        ("SGD", ["_foreach_add", "_foreach_add_"], 12),  # weight decay, no momentum
        ("Adagrad", ["_foreach_addcmul_", "_foreach_sqrt", "_foreach_addcdiv_"], 20),
    ],
)
def test_sgd_and_adagrad_are_advised_to_fuse(
    optimizer: str, operators: list[str], bytes_per_parameter: int
) -> None:
    elements = 1 << 26
    tensors = (tensor(elements),)
    work = [
        (OpCall(name=f"aten::{name}", args=(tensors, tensors, tensors)), 500.0)
        for name in operators
    ]
    timeline = scene_of(work, host_us=5).timeline()
    timeline = in_phase(timeline, Phase.OPTIMIZER)
    timeline = msgspec.structs.replace(
        timeline, names=[*timeline.names, f"Optimizer.step#{optimizer}.step"]
    )
    one = sure(step_model_of(timeline), "unfused-optimizer")
    assert one.change == f"torch.optim.{optimizer}(..., fused=True)"
    # At 72% of 5 TB/s.
    after_ns = bytes_per_parameter * elements / 5e12 / 0.72 * 1e9
    before_ns = 500e3 * len(operators)
    assert one.saving_ns.expected == pytest.approx(before_ns - after_ns, rel=0.1)
    # Any optimizer adds: a class that is not known is not taken for SGD.
    other = msgspec.structs.replace(
        timeline, names=[*timeline.names[:-1], "Optimizer.step#Own.step"]
    )
    is_adam_like = optimizer == "Adagrad"
    assert (finding(step_model_of(other), "unfused-optimizer") is not None) is is_adam_like


def test_fused_adam_on_cpu_has_little_dispatch() -> None:
    """Of a step of 2,000 us, the optimizer's clean phase takes 1,500, its 64 operators 640."""
    small = tensor(64, 64)
    scene = Scene(end=2000)
    names = ("mul_", "lerp_", "addcmul_", "addcdiv_") * 16
    for at, name in enumerate(names):
        call = OpCall(name=f"aten::{name}", args=(small, small, small))
        scene.on_host(30 * at, 30 * at + 10, call=call)
    timeline = in_phase(scene.timeline(), Phase.OPTIMIZER)
    wall, machine = float(timeline.wall_ns), round_machine()
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    step_model = build_step_model(
        timeline, machine, attribution, wall_ns=wall, phases={"optimizer": 1.5e6}
    )
    one = sure(step_model, "unfused-optimizer")
    worked = sum(work.exposed_ns for work in step_model.op_records)
    asked = 1.5e6 - worked
    assert one.saving_ns.expected == pytest.approx(worked + 0.88 * asked, rel=0.05)


def test_odd_vocabulary_is_padded() -> None:
    hidden, weights = tensor(4096, 1024, dtype="bfloat16"), tensor(1024, 30522, dtype="bfloat16")
    product = OpCall(name="aten::mm", args=(hidden, weights))
    # 2 * 4096 * 1024 * 30522 = 256 GFLOP at 1 PFLOP/s: a floor of 256 us, in 900.
    timeline = scene_of([(product, 900.0)] * 5, host_us=5).timeline()
    (finding,) = [f for f in faults.find([step_model_of(timeline)]) if f.fault == "wasted-tiles"]
    assert finding.change.startswith("vocabulary = 30528")
    assert finding.saving_ns.high == pytest.approx(5 * (900 - 256) * 1e3, rel=0.03)


def half(*shape: int, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape=shape, dtype="bfloat16", strides=strides)


@pytest.mark.parametrize(
    ("name", "args", "odd"),
    [
        # A token's rows are whole, however many tokens an expert got; and so in its gradient.
        ("mm", (half(1235, 4096), half(4096, 14336)), set()),
        ("mm", (half(4096, 1235, strides=(1, 4096)), half(1235, 14336)), set()),
        ("bmm", (half(8, 1235, 128), half(8, 128, 4096)), set()),
        # A vocabulary: of the result, of its gradient as rows, and of that transposed.
        ("mm", (half(4096, 1024), half(1024, 50257, strides=(1, 1024))), {50257}),
        ("addmm", (half(50257), half(4096, 1024), half(1024, 50257)), {50257}),
        ("linear", (half(4096, 1024), half(50257, 1024), None), {50257}),
        ("mm", (half(4096, 50257), half(50257, 1024)), {50257}),
        ("mm", (half(50257, 4096, strides=(1, 50257)), half(4096, 1024)), {50257}),
        # A part of rows that are wider, and start where they should.
        ("mm", (half(4096, 1235, strides=(4096, 1)), half(1235, 1024)), set()),
        # Two lengths that are odd on their own.
        ("bmm", (half(8, 1235, 128), half(8, 128, 1235)), {1235}),
        # Images are no rows.
        ("convolution", (half(32, 64, 300, 300), half(64, 64, 3, 3)), set()),
        # Float32 has rules of its own.
        ("mm", (tensor(4096, 1023), tensor(1023, 1024)), set()),
    ],
)
def test_dimension_is_odd_if_memory_rows_have_its_length(
    name: str, args: tuple[Argument, ...], odd: set[int]
) -> None:
    assert wasted_tiles.odd_extents(OpCall(name=f"aten::{name}", args=args)) == odd


def test_odd_images_and_token_counts_are_not_reported() -> None:
    """Both far under their roof, without a timing: 1235 tokens, and images of 300 x 300."""
    tokens = OpCall(name="aten::mm", args=(half(1235, 4096), half(4096, 14336)))
    tail = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    images = OpCall(
        name="aten::convolution", args=(half(32, 64, 300, 300), half(64, 64, 3, 3), *tail)
    )
    scene = scene_of([(tokens, 500.0), (images, 3000.0)] * 4, host_us=5)
    assert found(scene, "wasted-tiles") is None


@pytest.mark.parametrize(
    ("product", "word"),
    [
        (("mm", half(4096, 2048), half(2048, 5461)), "out_features = 5504"),
        (("bmm", half(8, 2049, 2048), half(8, 2048, 2049)), "size = 2112"),
    ],
)
def test_only_the_vocabulary_dimension_is_named_so(
    product: tuple[str, Tensor, Tensor], word: str
) -> None:
    name, *operands = product
    call = OpCall(name=f"aten::{name}", args=tuple(operands))
    finding = found(scene_of([(call, 900.0)] * 5, host_us=5), "wasted-tiles")
    assert finding is not None and finding.change.startswith(word)


def attention_layer(*masking: OpCall, length: int = 1024) -> list[tuple[OpCall, float]]:
    """32 heads at 64 wide. Scores of 1024 x 1024: two products of 4.3 GFLOP, the rest traffic."""
    scores, query = half(2, 16, length, length), half(32, length, 64)
    return [
        (OpCall(name="aten::bmm", args=(query, half(32, 64, length))), 40.0),
        (OpCall(name="aten::div", args=(scores, 8.0)), 60.0),
        *((call, 60.0) for call in masking),
        (OpCall(name="aten::_softmax", args=(scores, -1, False)), 90.0),
        (OpCall(name="aten::bmm", args=(half(32, length, length), half(32, length, 64))), 40.0),
    ]


def attention_scene(*masking: OpCall) -> Scene:
    return scene_of(attention_layer(*masking) * 4, host_us=5)


def test_materialised_scores_are_fused() -> None:
    finding = found(attention_scene(), "materialised-attention")
    assert finding is not None
    # 4 layers * 8.6 GFLOP at 25% of 1 PFLOP/s = 137 us of the 920 us.
    assert finding.saving_ns.expected == pytest.approx((920 - 137) * 1e3, rel=0.05)


def test_short_sequences_are_reported_if_a_fused_kernel_was_benchmarked() -> None:
    """Heads as wide as the sequence is long: queries have the shape of scores, and are kept."""
    query = half(2, 16, 64, 64)
    copied = (OpCall(name="aten::copy_", args=(query, query)), 10.0)
    timeline = scene_of([copied, *attention_layer(length=64)] * 4, host_us=5).timeline()
    step_model = step_model_of(timeline)
    assert materialised_attention.detect(step_model) is None
    step_model.timings.results |= dict.fromkeys(step_model.timings.requested, 30e3)
    detection = materialised_attention.detect(step_model)
    assert detection is not None
    assert sum(detection.expected.op_ns.values()) == pytest.approx(4 * 30e3)
    removed = {step_model.op_records[index].name for index in detection.expected.op_ns}
    assert removed == {"aten::bmm", "aten::div", "aten::_softmax"}


def test_short_decoder_does_not_hide_attention_of_a_long_encoder() -> None:
    """Both are benchmarked; without a figure for the short one the long one is found alone."""
    layers = [*attention_layer(length=1024), *attention_layer(length=64)] * 2
    step_model = step_model_of(scene_of(layers, host_us=5).timeline())
    detection = materialised_attention.detect(step_model)
    assert detection is not None
    queries = [one.args[0] for one in step_model.timings.requested]
    assert {one.shape[-2] for one in queries if isinstance(one, Tensor)} == {64, 1024}
    step_model.timings.results |= dict.fromkeys(step_model.timings.requested, 20e3)
    both = materialised_attention.detect(step_model)
    assert both is not None
    assert len(both.expected.op_ns) == 2 * len(detection.expected.op_ns)
    assert sum(both.expected.op_ns.values()) == pytest.approx(4 * 20e3)


def on_a_cpu(around: str, *masking: OpCall) -> Timeline:
    scene = Scene()
    scene.on_host(0, 300, name=around)
    clock = 5.0
    for call, took in attention_layer(*masking):
        scene.on_host(clock, clock + took, call=call)
        clock += took
    scene.end = 310
    return scene.timeline()


@pytest.mark.parametrize("around", ["aten::_scaled_dot_product_attention_math", "aten::mine"])
def test_math_fallback_of_torch_is_not_reported(around: str) -> None:
    """On a CPU, with a bias that is trained: the script calls the fused one already."""
    detection = materialised_attention.detect(step_model_of(on_a_cpu(around)))
    assert (detection is None) == around.endswith("_math")


def test_dropout_has_no_fused_kernel_on_a_cpu() -> None:
    """A mask is drawn for the weights: torch would do plain products."""
    drawn = OpCall(name="aten::bernoulli_", args=(half(2, 16, 1024, 1024), 0.9, None))
    assert materialised_attention.detect(step_model_of(on_a_cpu("aten::mine", drawn))) is None
    assert found(attention_scene(drawn), "materialised-attention") is not None


SCORES = half(2, 16, 1024, 1024)
LATER = Tensor(shape=(1, 1, 1024, 1024), dtype="bool", strides=(1048576, 1048576, 1024, 1))
PADDING = Tensor(shape=(2, 1, 1024, 1024), dtype="bool", strides=(1024, 1024, 0, 1))
OWN = Tensor(shape=(2, 1, 1024, 1024), dtype="bfloat16")
BIAS = Tensor(shape=(1, 16, 1024, 1024), dtype="bfloat16")


@pytest.mark.parametrize(
    ("masking", "expected", "best"),
    [
        (OpCall(name="aten::masked_fill", args=(SCORES, LATER, -1e9)), 0.5, 0.5),
        (OpCall(name="aten::where", args=(LATER, SCORES, tensor())), 0.5, 0.5),
        (OpCall(name="aten::masked_fill_", args=(SCORES, PADDING, -1e9)), 1.0, 1.0),
        (OpCall(name="aten::add", args=(SCORES, OWN)), 1.0, 0.5),
        (OpCall(name="aten::add", args=(SCORES, BIAS)), 1.0, 1.0),
        (OpCall(name="aten::mul", args=(SCORES, SCORES)), 1.0, 1.0),
    ],
)
def test_causal_attention_is_benchmarked_as_causal(
    masking: OpCall, expected: float, best: float
) -> None:
    """A fused kernel of 40 us a layer, of 20 where it may skip what comes later."""
    step_model = step_model_of(attention_scene(masking).timeline())
    # 34 GFLOP at a third of 1 PFLOP/s: a causal one does half of them.
    unknown = materialised_attention.detect(step_model)
    assert unknown is not None
    assert sum(unknown.high.op_ns.values()) == pytest.approx(best * 34.4e3 / 0.33, rel=0.01)
    assert sum(unknown.expected.op_ns.values()) == pytest.approx(expected * 137e3, rel=0.01)
    step_model.timings.results |= {
        one: 20e3 if one.args[4] else 40e3 for one in step_model.timings.requested
    }
    finding = materialised_attention.detect(step_model)
    assert finding is not None
    assert sum(finding.low.op_ns.values()) == pytest.approx(1.3 * 160e3)
    assert sum(finding.expected.op_ns.values()) == pytest.approx(expected * 160e3)
    assert sum(finding.high.op_ns.values()) == pytest.approx(best * 0.75 * 160e3)


@pytest.mark.parametrize(
    ("masking", "given"),
    [
        ((), "q, k, v"),
        ((OpCall(name="aten::mul", args=(SCORES, half(1))),), "q, k, v"),
        ((OpCall(name="aten::where", args=(LATER, SCORES, tensor())),), "q, k, v, is_causal=True"),
        ((OpCall(name="aten::add", args=(SCORES, BIAS)),), "q, k, v, attn_mask=mask"),
        (
            (
                OpCall(name="aten::masked_fill_", args=(SCORES, PADDING, -1e9)),
                OpCall(name="aten::native_dropout", args=(SCORES, 0.1, True)),
            ),
            "q, k, v, attn_mask=mask, dropout_p=p",
        ),
    ],
)
def test_attention_change_names_observed_arguments(masking: tuple[OpCall, ...], given: str) -> None:
    finding = found(attention_scene(*masking), "materialised-attention")
    assert finding is not None
    assert finding.change == f"y = F.scaled_dot_product_attention({given})"


@pytest.mark.parametrize(
    "maker", ["transformers/masking_utils.py(872): create_causal_mask", "aten::tril"]
)
def test_mask_built_in_the_step_is_recognised_as_causal(maker: str) -> None:
    """Added, and with one for each sample, it might hide padding: but it was seen being made."""
    scene = attention_scene(OpCall(name="aten::add", args=(SCORES, OWN)))
    scene.on_host(scene.end, scene.end + 10, HostKind.PYTHON, maker)
    detection = materialised_attention.detect(step_model_of(scene.timeline()))
    assert detection is not None
    assert sum(detection.expected.op_ns.values()) == pytest.approx(0.5 * 137e3, rel=0.01)


def test_library_attention_is_reported_with_its_own_option_and_lines() -> None:
    timeline = attention_scene().timeline()
    led = np.zeros(len(timeline.host), np.int32)
    timeline = msgspec.structs.replace(
        timeline,
        sources=["transformers/models/bert/modeling_bert.py:133", "train.py:7"],
        host=msgspec.structs.replace(timeline.host, inside=led, source=led + 1),
    )
    findings = faults.find([step_model_of(timeline)])
    (finding,) = [f for f in findings if f.fault == "materialised-attention"]
    assert finding.change.startswith('model.set_attn_implementation("sdpa")')
    assert finding.where == ["train.py:7"]
    assert finding.inside == ["transformers/models/bert/modeling_bert.py:133"]


def test_sync_of_an_unneeded_library_mask_is_removed() -> None:
    """transformers copies part of its mask from the host; the fused kernel masks by itself."""
    scene = attention_scene()
    scene.on_host(scene.end, scene.end + 10, HostKind.SYNC, "cudaStreamSynchronize")
    timeline = scene.timeline()
    for source, left in (("transformers/masking_utils.py:420", 0), ("models/mine.py:7", 1)):
        inside = np.full(len(timeline.host), -1, np.int32)
        inside[-1] = 0
        host = msgspec.structs.replace(timeline.host, inside=inside)
        led = msgspec.structs.replace(timeline, sources=[source], host=host)
        step_model = step_model_of(led)
        detection = materialised_attention.detect(step_model)
        assert detection is not None
        assert int(step_model.apply(detection.expected).launches.wait.sum()) == left
