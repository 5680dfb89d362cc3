"""Faults of the device's side: each seen where it is, sized by hand, and not seen where not."""

from pathlib import Path

import pytest

from boundby import faults
from boundby.faults import (
    far_from_roof,
    logits_materialised,
)
from boundby.model import DeviceKind, HostKind, Note, OpCall, Phase, Timeline
from boundby.model.host_counters import HostCounters
from boundby.model.observation import Observation
from boundby.step.model import Edit
from tests.faults.step_models import finding, in_phase, step_model_of, sure
from tests.step.test_replay import GELU, PRODUCT, scene_of
from tests.timelines import Scene, tensor

VOCABULARY = 32_000
LOGITS = tensor(4096, VOCABULARY)


def head(vocabulary: int = VOCABULARY) -> list[tuple[OpCall, float]]:
    """A language model's last product and its loss, eagerly: four passes over float32 logits."""
    logits = tensor(4096, vocabulary)
    short = tensor(4096, vocabulary, dtype="bfloat16")
    hidden = tensor(4096, 1024, dtype="bfloat16")
    weights = tensor(1024, vocabulary, dtype="bfloat16")
    return [
        (OpCall(name="aten::mm", args=(hidden, weights)), 300.0),
        (OpCall(name="aten::_to_copy", args=(short, 6)), 200.0),
        (OpCall(name="aten::_log_softmax", args=(logits, 1, False)), 400.0),
        (OpCall(name="aten::_log_softmax_backward_data", args=(logits, logits, 1, 6)), 500.0),
        (OpCall(name="aten::_to_copy", args=(logits, 15)), 200.0),
    ]


def test_fused_loss_leaves_five_passes_over_logits_in_the_matmul_dtype() -> None:
    timeline = in_phase(scene_of(head(), host_us=5).timeline(), Phase.BACKWARD, slice(6, None))
    found = sure(step_model_of(timeline), "logits-materialised")
    # 131 M logits of 2 bytes at 75% of 5 TB/s: 70 us a pass, five of them left of 1,300 us.
    assert found.saving_ns.expected == pytest.approx((1300 - 5 * 70) * 1e3, rel=0.03)
    # The float32 logits and their log-softmax: two times 4096 x 32000 x 4 bytes.
    assert "1.05 GB less memory" in found.change


def test_kernels_of_a_compiled_function_are_not_passes_over_logits() -> None:
    whole = (OpCall(name="CompiledFunctionBackward", args=(LOGITS,)), 5000.0)
    alone = sure(step_model_of(scene_of(head(), host_us=5).timeline()), "logits-materialised")
    beside = scene_of([*head(), whole], host_us=5).timeline()
    found = sure(step_model_of(beside), "logits-materialised")
    assert found.saving_ns.expected == pytest.approx(alone.saving_ns.expected, rel=0.05)


def test_small_vocabulary_is_not_reported() -> None:
    timeline = scene_of(head(vocabulary=1000), host_us=5).timeline()
    assert logits_materialised.detect(step_model_of(timeline)) is None


def test_host_bound_step_gains_nothing_from_fused_loss() -> None:
    timeline = scene_of(head(), host_us=5000).timeline()
    detection = logits_materialised.detect(step_model := step_model_of(timeline))
    assert detection is not None
    # Of the device's 1,300 us not one: only launches would be fewer.
    assert step_model.saving(Edit(op_ns=detection.high.op_ns)) == pytest.approx(0, abs=1)


SLOW = OpCall(name="aten::gelu", args=(tensor(32, 2_000_000), None))


def test_slow_kernel_is_expected_to_approach_others_of_its_class() -> None:
    """512 MB at 5 TB/s: 102 us. One GELU takes 128 (80% of the roof), the other 1,024."""
    timeline = scene_of([(GELU, 128.0)] * 4 + [(SLOW, 1024.0)], host_us=5).timeline()
    found = sure(step_model_of(timeline), "far-from-roof")
    assert found.saving_ns.low == 0
    assert found.saving_ns.high == pytest.approx((1024 - 128) * 1e3, rel=0.03)
    assert found.saving_ns.expected == pytest.approx((1024 - 128) / 4 * 1e3, rel=0.03)
    assert "10.0x its roofline minimum" in found.change


def test_random_input_data_is_not_compiled_with_the_model() -> None:
    drawn = OpCall(name="aten::normal_", args=(tensor(32, 2_000_000), 0.0, 1.0))
    timeline = scene_of([(GELU, 128.0)] * 4 + [(drawn, 1024.0)], host_us=5).timeline()
    assert far_from_roof.detect(step_model_of(timeline)) is None


def test_change_is_that_of_the_costliest_comparable_kernel() -> None:
    """A normalization is slower still, but no other of its class says what could be reached."""
    rows = tensor(32, 2_000_000)
    alone = OpCall(name="aten::_softmax", args=(rows, -1, False))
    timeline = scene_of(
        [(GELU, 128.0)] * 4 + [(SLOW, 1024.0), (alone, 3000.0)], host_us=5
    ).timeline()
    found = sure(step_model_of(timeline), "far-from-roof")
    assert "aten::gelu takes 10.0x its roofline minimum" in found.change


def test_kernel_without_faster_peers_is_not_reported() -> None:
    alone = scene_of([(SLOW, 1024.0)] + [(PRODUCT, 138.0)] * 4, host_us=5).timeline()
    assert far_from_roof.detect(step_model_of(alone)) is None
    near = scene_of([(GELU, 128.0), (SLOW, 140.0)], host_us=5).timeline()
    assert far_from_roof.detect(step_model_of(near)) is None


TRACES = Path(__file__).parent.parent / "data" / "h200"


@pytest.mark.parametrize(
    ("name", "wall_ms"), [("bert_base_b1_overhead", 52.2), ("bad_mlp_syncs", 14.6)]
)
def test_faster_kernels_save_little_on_host_bound_steps(name: str, wall_ms: float) -> None:
    from boundby import load

    diagnosis = load(TRACES / f"{name}.json.gz", wall_ns=wall_ms * 1e6)
    ours = {"logits-materialised", "far-from-roof", "zeroed-gradients", "pageable-copies"}
    for one in diagnosis.findings:
        assert one.fault not in ours or one.saving_ns.expected < 0.03 * diagnosis.step.wall_ns


def allocating(calls: int, us: float = 1000.0) -> Scene:
    """The driver allocates memory between two kernels, on an idle device."""
    scene = Scene(end=20_000.0)
    at = 0.0
    for turn in range(10):
        if turn < calls:
            scene.on_host(at, at + us, kind=HostKind.RUNTIME, name="cudaFree")
            at += us
        launch = scene.on_host(at, at + 10, kind=HostKind.LAUNCH, name="cudaLaunchKernel")
        scene.on_device(at + 20, at + 520, launch=launch)
        at += 600
    scene.end = at
    return scene


def test_allocation_in_warm_step_is_found() -> None:
    step_model = step_model_of(allocating(4).timeline())
    found = sure(step_model, "fragmented-memory")
    assert "expandable_segments" in found.change
    assert "4 calls a step" in found.assumes
    # Four calls of a millisecond, with nothing queued that could hide them.
    assert found.saving_ns.high == pytest.approx(4e6, rel=0.2)
    assert found.provable
    assert finding(step_model_of(allocating(0).timeline()), "fragmented-memory") is None


def test_allocator_calls_are_saved_once_with_graphs() -> None:
    """A captured graph takes no more host time off the step than the allocator's calls left."""
    step_model = step_model_of(allocating(10).timeline())
    busy_ns = float(step_model.timeline.device.duration_ns.sum())
    both = faults.combine([step_model], faults.find([step_model]))
    together = min(row.wall_ns.low for row in both)
    assert {"fragmented-memory", "eager-launches"} <= {one for row in both for one in row.faults}
    assert together >= busy_ns


def test_copies_in_a_trace_without_host_events_are_checked() -> None:
    scene = Scene(end=10_000.0)
    scene.on_device(0, 9000, DeviceKind.COPY_H2D, "Memcpy HtoD (Pageable -> Device)", size=1 << 26)
    step_model = step_model_of(scene.timeline())
    assert not len(step_model.actions_of([0]))
    fault = next(one for one in faults.FAULTS if one.id == "pageable-copies")
    assert fault.find_in(step_model) is not None


def test_saving_is_limited_by_busy_stream() -> None:
    step_model = step_model_of(allocating(2).timeline())
    busy_ns = float(step_model.timeline.device.duration_ns.sum())
    assert step_model.evaluate(Edit.save_step(1e12)) == busy_ns


def test_allocation_under_profiler_alone_is_not_reported() -> None:
    timeline = allocating(4).timeline()
    clean = HostCounters(steps_ns=(10e6,) * 10, wall_ns=1e8, allocations=0)
    assert finding(step_model_of(timeline, host_counters=clean), "fragmented-memory") is None
    churning = HostCounters(steps_ns=(10e6,) * 10, wall_ns=1e8, allocations=40)
    sure(step_model_of(timeline, host_counters=churning), "fragmented-memory")


def attention_step(dtype: str = "bfloat16", us: float = 900.0) -> Timeline:
    """Memory-efficient attention of 8 x 16 heads of 64 over 2048 tokens: 137 GFLOP a forward."""
    q = tensor(8, 16, 2048, 64, dtype=dtype)
    name = "aten::_scaled_dot_product_efficient_attention"
    call = OpCall(name=name, args=(q, q, q, None, True, 0.0, False))
    return scene_of([(call, us)] * 4, host_us=5).timeline()


def test_faster_attention_kernel_is_found_by_benchmark() -> None:
    step_model = step_model_of(attention_step())
    assert (
        finding(step_model, "slow-attention") is None
    )  # 137 TFLOP/s of 1000: not far, by the roof
    asked = [one for one in step_model.timings.requested if one.name == "attention"]
    assert {one.args[6] for one in asked} == {"efficient", "flash", "cudnn"}
    step_model.timings.results |= {
        one: {"efficient": 900e3, "flash": 700e3, "cudnn": 450e3}[str(one.args[6])] for one in asked
    }
    found = sure(step_model, "slow-attention")
    assert "CUDNN_ATTENTION" in found.change
    # Nine tenths of half of four calls.
    assert found.saving_ns.expected == pytest.approx(0.9 * 0.5 * 4 * 900e3, rel=0.05)


def test_attention_as_fast_as_alternatives_is_not_reported() -> None:
    step_model = step_model_of(attention_step())
    finding(step_model, "slow-attention")
    step_model.timings.results |= dict.fromkeys(step_model.timings.requested, 900e3)
    assert finding(step_model, "slow-attention") is None


def test_attention_of_a_trace_is_reported_only_far_below_its_roof() -> None:
    far = sure(step_model_of(attention_step(us=3000.0)), "slow-attention")
    assert "FLASH_ATTENTION" in far.change
    assert far.saving_ns.low == 0
    # Flash attention has no float32: nothing to choose from.
    assert finding(step_model_of(attention_step("float32", 30000.0)), "slow-attention") is None


@pytest.mark.parametrize("fault", ["host-sync", "eager-launches"])
def test_advice_for_inference_mentions_no_training(fault: str) -> None:
    def launched(phase: Phase) -> str:
        scene = Scene(end=20_000.0)
        for turn in range(40):
            at = 400.0 * turn
            scene.on_host(at, at + 300, name="aten::mm")
            row = scene.on_host(at + 250, at + 260, kind=HostKind.LAUNCH, name="cudaLaunchKernel")
            scene.on_device(at + 270, at + 290, launch=row)
            if turn == 20:
                scene.on_host(at + 310, at + 330, kind=HostKind.SYNC, name="cudaStreamSynchronize")
        one = next(one for one in faults.FAULTS if one.id == fault)
        found = one.find_in(step_model_of(in_phase(scene.timeline(), phase)))
        assert found is not None
        return found.change

    words = ("loss", "make_graphed_callables")
    assert any(word in launched(Phase.BACKWARD) for word in words)
    assert not any(word in launched(Phase.FORWARD) for word in words)


def test_the_only_step_of_a_trace_may_have_to_allocate() -> None:
    step_model = step_model_of(allocating(4).timeline())
    note = Note(code="no-repeated-step", text="")
    step_model.observation = Observation(source="kineto", framework="torch", notes=[note])
    assert finding(step_model, "fragmented-memory") is None
