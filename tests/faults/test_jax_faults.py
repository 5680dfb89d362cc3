"""Faults of JAX programs, in made-up steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.analysis.verdict import find_verdict
from boundby.faults import host_sync
from boundby.model import HloInstruction, HostKind, OpCall, Phase, Timeline
from boundby.model.host_counters import HostCounters
from boundby.model.jax_facts import (
    JaxChange,
    JaxCompilation,
    JaxFacts,
    JaxFunction,
    JaxHostArray,
)
from boundby.model.observation import Observation, ObservedDevice, RepeatedCode
from boundby.step.build import build_step_model
from boundby.step.inference import is_inference
from boundby.step.jax_programs import eager_calls
from boundby.step.model import StepModel
from tests.faults.step_models import at_line, finding, sure
from tests.machines import round_machine
from tests.step.test_replay import GELU, scene_of
from tests.timelines import US, Scene, tensor

CALLBACK = OpCall(
    name="hlo::custom-call",
    args=(),
    hlo=HloInstruction(
        name="custom-call.1", opcode="custom-call", target="xla_ffi_python_gpu_callback"
    ),
)


def _model(
    timeline: Timeline,
    facts: JaxFacts | None = None,
    repeated: Sequence[RepeatedCode] = (),
    host: HostCounters | None = None,
) -> StepModel:
    machine = round_machine()
    wall = float(timeline.wall_ns)
    return build_step_model(
        timeline,
        machine,
        attribute_step(timeline, machine, wall_ns=wall),
        wall_ns=wall,
        phases={},
        observation=Observation(
            source="jax",
            framework="jax",
            device=ObservedDevice(kind="cuda"),
            timeline=timeline,
            jax=facts or JaxFacts(),
            repeated=list(repeated),
        ),
        host_counters=host or HostCounters(),
    )


def _programs(*calls: tuple[OpCall, str, float]) -> Timeline:
    """Kernels of one program: operation, scope, and microseconds."""
    timeline = scene_of([(GELU, us) for *_, us in calls], host_us=5).timeline()
    scopes = list(dict.fromkeys(scope for _, scope, _ in calls))
    count = np.arange(len(calls), dtype=np.int32)
    device = msgspec.structs.replace(
        timeline.device,
        op=np.full(len(calls), -1, np.int32),
        call=count,
        share=count,
        source=np.zeros(len(calls), np.int32),
        inside=np.full(len(calls), -1, np.int32),
        module=np.array([scopes.index(scope) for _, scope, _ in calls], np.int32),
        phase=np.zeros(len(calls), np.int8),
    )
    return msgspec.structs.replace(
        timeline,
        device=device,
        calls=[call for call, *_ in calls],
        modules=scopes,
        sources=["train.py:3"],
    )


def test_callbacks_into_python_are_found_at_their_line() -> None:
    model = _model(_programs((GELU, "", 100.0), (CALLBACK, "", 300.0)))
    found = sure(model, "jax-host-callbacks")
    assert found.where == ["train.py:3"]
    assert 200 * US < found.saving_ns.expected <= 310 * US


def test_time_in_callbacks_is_overhead_of_python() -> None:
    model = _model(_programs((GELU, "", 100.0), (CALLBACK, "", 900.0)))
    overhead = model.account.overhead
    assert overhead.parts["python"] >= 900 * US
    assert overhead.ns == pytest.approx(sum(overhead.parts.values()))
    assert find_verdict(model).verdict.bound_by == "overhead"


def test_float32_products_are_looked_for_on_gpus_only() -> None:
    product = OpCall(
        name="hlo::dot",
        args=(tensor(4096, 4096), tensor(4096, 4096)),
        hlo=HloInstruction(name="dot.1", opcode="dot"),
    )
    timeline = msgspec.structs.replace(_programs((product, "", 9e4)), device_kind="cpu")
    assert finding(_model(timeline), "jax-float32-products") is None


def test_double_precision_is_found_in_programs() -> None:
    product = OpCall(
        name="hlo::dot",
        args=(tensor(64, 4096, dtype="float64"), tensor(4096, 64, dtype="float64")),
        hlo=HloInstruction(name="dot.1", opcode="dot"),
    )
    found = sure(_model(_programs((product, "", 900.0))), "float64")
    assert found.where == ["train.py:3"]
    assert "jax_enable_x64" in found.change


def test_other_custom_calls_are_not_callbacks() -> None:
    assert CALLBACK.hlo is not None
    product = msgspec.structs.replace(CALLBACK.hlo, target="__cublas$gemm")
    model = _model(_programs((GELU, "", 100.0), (OpCall(name="x", args=(), hlo=product), "", 99.0)))
    assert finding(model, "jax-host-callbacks") is None


def test_recomputed_operators_are_found() -> None:
    model = _model(
        _programs((GELU, "net.block", 300.0), (GELU, "net.rematted_computation.block", 200.0))
    )
    found = sure(model, "jax-rematerialisation")
    assert 120 * US < found.saving_ns.expected < 200 * US
    assert finding(_model(_programs((GELU, "net.block", 300.0))), "jax-rematerialisation") is None


def test_recomputed_operators_name_the_line_of_the_checkpoint_first() -> None:
    timeline = _programs((GELU, "net", 300.0), (GELU, "net.rematted_computation", 200.0))
    found = sure(_model(timeline, JaxFacts(checkpoints=["train.py:8"])), "jax-rematerialisation")
    assert found.where == ["train.py:8", "train.py:3"]


def _with_eager_calls(*, own: str) -> StepModel:
    """A line of 800 us with five calls of 20 us, and one of the script's own of 300 us."""
    scene = Scene(end=1000)
    scene.on_host(0, 800, HostKind.PYTHON, "train.py(9): main")
    for at in range(5):
        scene.on_host(10 + 50 * at, 30 + 50 * at, HostKind.OP, "PjitFunction(add)")
    call = scene.on_host(400, 700, HostKind.OP, f"PjitFunction({own})")
    scene.on_device(800, 1000, launch=call)
    functions = [JaxFunction(name="step")]
    return _model(at_line(scene.timeline(), "train.py:9"), JaxFacts(functions=functions))


def test_eager_operator_cost_is_line_time_without_compiled_calls() -> None:
    found = sure(_with_eager_calls(own="step"), "jax-eager-operators")
    assert found.where == ["train.py:9"]
    assert 300 * US < found.saving_ns.expected <= 630 * US
    more = sure(_with_eager_calls(own="multiply"), "jax-eager-operators")
    assert more.saving_ns.expected > found.saving_ns.expected


def test_eager_operators_of_a_model_name_the_line_that_calls_it() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 800, HostKind.PYTHON, "net.py(9): layer")
    for at in range(5):
        scene.on_host(10 + 50 * at, 30 + 50 * at, HostKind.OP, "PjitFunction(add)")
    timeline = at_line(scene.timeline(), "net.py:9")
    host = msgspec.structs.replace(
        timeline.host, outer=np.full(len(timeline.host), len(timeline.sources), np.int32)
    )
    timeline = msgspec.structs.replace(
        timeline, host=host, sources=[*timeline.sources, "train.py:3"]
    )
    assert eager_calls(_model(timeline)).where == ["train.py:3", "net.py:9"]


@pytest.mark.parametrize(
    ("names", "words"),
    [(["_threefry_split", "unstack"], "jax.random.split(key, n)"), (["add"], "@jax.jit")],
)
def test_keys_split_on_the_host_have_their_own_advice(names: list[str], words: str) -> None:
    scene = Scene(end=1000)
    for at in range(8):
        name = f"PjitFunction({names[at % len(names)]})"
        scene.on_host(100 * at, 100 * at + 80, HostKind.OP, name)
    scene.on_device(800, 1000, launch=scene.on_host(790, 800, HostKind.OP, "PjitFunction(step)"))
    facts = JaxFacts(functions=[JaxFunction(name="step")])
    found = sure(_model(at_line(scene.timeline(), "train.py:9"), facts), "jax-eager-operators")
    assert words in found.change


@pytest.mark.parametrize(("kind", "spent_us"), [("cuda", 800), ("cpu", 400)])
def test_operators_of_earlier_programs_are_no_cost_of_eager_lines(
    kind: str, spent_us: float
) -> None:
    """A line of 800 us, during 400 us of which a program runs that was called before it."""
    scene = Scene(end=1000)
    call = scene.on_host(0, 100, HostKind.OP, "PjitFunction(step)")
    scene.on_device(100, 500, launch=call)
    scene.on_host(100, 900, HostKind.PYTHON, "train.py(9): main")
    for at in range(8):
        scene.on_host(110 + 90 * at, 130 + 90 * at, HostKind.OP, "PjitFunction(add)")
    timeline = at_line(msgspec.structs.replace(scene.timeline(), device_kind=kind), "train.py:9")
    model = _model(timeline, JaxFacts(functions=[JaxFunction(name="step")]))
    assert eager_calls(model).host_ns == pytest.approx(spent_us * US)


def _with_python(*, calls: bool) -> StepModel:
    scene = Scene(end=1000)
    scene.on_host(0, 700, HostKind.PYTHON, "train.py(9): main")
    start = 500 if calls else 800
    call = scene.on_host(start, start + 100, HostKind.OP, "PjitFunction(step)")
    scene.on_device(start + 100, 1000, launch=call)
    return _model(at_line(scene.timeline(), "train.py:9"))


def test_library_calling_the_program_is_not_user_python() -> None:
    assert finding(_with_python(calls=True), "python-in-step") is None
    assert finding(_with_python(calls=False), "python-in-step") is not None


@pytest.mark.parametrize("is_fed", [True, False])
def test_python_between_the_calls_of_a_policy_is_an_environment(*, is_fed: bool) -> None:
    """Ten calls of a function, and 900 us of Python after each."""
    scene = Scene(end=10_000)
    for at in range(0, 10_000, 1000):
        call = scene.on_host(at, at + 50, HostKind.OP, "PjitFunction(act)")
        scene.on_device(at + 50, at + 100, launch=call)
        scene.on_host(at + 100, at + 1000, HostKind.PYTHON, "train.py(9): step")
    facts = JaxFacts(functions=[JaxFunction(name="act", is_fed=is_fed)])
    found = sure(_model(at_line(scene.timeline(), "train.py:9"), facts), "python-in-step")
    assert (found.kind == "tuning") is is_fed
    assert ("jax.lax.scan" in found.change) is is_fed


def _looped(*, depends: bool, compiled_ns: float = 0.0) -> StepModel:
    small = OpCall(name="aten::gelu", args=(tensor(64, 64), None))
    timeline = _programs(*((small, "", 20.0) for _ in range(16)))
    loop = RepeatedCode(
        program="jit_step", line="train.py:3", count=16, depends=depends, lines=["train.py:3"]
    )
    compiled = JaxCompilation(function="jit(step)", step=0, ns=compiled_ns)
    return _model(timeline, JaxFacts(compilations=[compiled]), repeated=[loop])


def test_a_loop_over_samples_saves_small_operators() -> None:
    model = _looped(depends=False)
    found = sure(model, "jax-looped-samples")
    assert found.where == ["train.py:3"]
    assert "vmap" in found.change
    assert finding(model, "jax-unrolled-loop") is None


def test_a_loop_over_layers_saves_compilation_where_it_takes_long() -> None:
    found = sure(_looped(depends=True, compiled_ns=20e9), "jax-unrolled-loop")
    assert 9e9 < found.saving_ns.expected < 15e9
    assert finding(_looped(depends=True, compiled_ns=1e9), "jax-unrolled-loop") is None
    assert finding(_looped(depends=True, compiled_ns=20e9), "jax-looped-samples") is None


def _calls_a_step(count: int, *, fetched: bool = False, **known: Any) -> StepModel:
    """Calls of one function, each with an operator of 60 us."""
    scene = Scene(end=100 * count)
    for at in range(count):
        start = 100 * at
        call = scene.on_host(start, start + 20, HostKind.OP, "PjitFunction(score)")
        scene.on_device(start + 20, start + 80, launch=call)
        if fetched:
            scene.on_host(start + 30, start + 80, HostKind.SYNC, "wait")
    facts = JaxFacts(functions=[JaxFunction(name="score", source="train.py:3", **known)])
    return _model(at_line(scene.timeline(), "train.py:9"), facts)


def test_calls_for_single_samples_are_found_at_the_line_that_makes_them() -> None:
    found = sure(_calls_a_step(8, batch=[1, 40]), "jax-looped-calls")
    assert found.where == ["train.py:9", "train.py:3"]
    assert found.saving_ns.expected > 250 * US
    assert "vmap(score" in found.change


def test_calls_for_the_rows_of_one_array_are_no_rollout() -> None:
    known = {"batch": [4], "is_fed": True, "samples": 8}
    found = sure(_calls_a_step(8, fetched=True, **known), "jax-looped-calls")
    assert found.where == ["train.py:9", "train.py:3"]
    assert finding(_calls_a_step(8, fetched=True, batch=[4]), "jax-looped-calls") is None


@pytest.mark.parametrize(
    ("calls", "fetched", "known"),
    [
        (8, False, {"batch": [16, 40]}),
        (8, False, {"batch": [1, 40], "carries": True}),
        (2, False, {"batch": [1, 40]}),
        (8, True, {"batch": [1, 40]}),
    ],
)
def test_calls_of_batches_states_and_rollouts_are_no_loop_over_samples(
    calls: int, *, fetched: bool, known: dict[str, Any]
) -> None:
    assert finding(_calls_a_step(calls, fetched=fetched, **known), "jax-looped-calls") is None


def _with_copies(*given: JaxHostArray) -> StepModel:
    scene = Scene(end=1000)
    call = scene.on_host(0, 900, HostKind.OP, "PjitFunction(step)")
    scene.on_host(10, 710, HostKind.RUNTIME, "DevicePut")
    scene.on_device(900, 1000, launch=call)
    return _model(at_line(scene.timeline(), "train.py:9"), JaxFacts(host_arrays=list(given)))


def test_constant_numpy_array_in_every_call_is_found() -> None:
    table = JaxHostArray(argument="table", bytes=3_000_000, is_same=True)
    batch = JaxHostArray(argument="x", bytes=1_000_000, is_same=False)
    found = sure(_with_copies(table, batch), "jax-implicit-transfers")
    assert found.where == ["train.py:9"]
    assert 350 * US < found.saving_ns.expected <= 600 * US
    assert "table" in found.change


def test_copy_inside_of_the_call_takes_its_measured_time() -> None:
    """On a CPU no event tells of such copies."""
    table = JaxHostArray(argument="table", bytes=3_000_000, is_same=True, copy_ns=300.0 * US)
    scene = Scene(end=1000)
    call = scene.on_host(0, 900, HostKind.OP, "PjitFunction(step)")
    scene.on_device(900, 1000, launch=call)
    timeline = msgspec.structs.replace(scene.timeline(), device_kind="cpu")
    facts = JaxFacts(function=JaxFunction(name="step"), host_arrays=[table])
    found = sure(_model(at_line(timeline, "train.py:9"), facts), "jax-implicit-transfers")
    assert found.where == ["train.py:9"]
    assert 250 * US < found.saving_ns.expected < 320 * US


def test_new_batch_in_every_call_is_not_reported() -> None:
    batch = JaxHostArray(argument="x", bytes=4_000_000, is_same=False)
    assert finding(_with_copies(batch), "jax-implicit-transfers") is None


def _recompiling(compiler_us: Sequence[float], **reason: Any) -> StepModel:
    """Steps of 1 ms beside their compilation; `reason`: of each compilation after the warm-up."""
    again = [
        JaxCompilation(function="jit(step)", step=10 + at, ns=us * US, **reason)
        for at, us in enumerate(compiler_us)
        if us
    ]
    facts = JaxFacts(
        functions=[JaxFunction(name="step", source="train.py:7")],
        compilations=[JaxCompilation(function="jit(step)", step=0, ns=9000 * US), *again],
        warmup_steps=10,
    )
    counters = HostCounters(
        compiler_ns=tuple(us * US for us in compiler_us),
        steps_ns=tuple((1000 + us) * US for us in compiler_us),
    )
    scene = Scene(end=6000)
    call = scene.on_host(0, 5500, HostKind.OP, "PjitFunction(step)")
    scene.on_device(5500, 6000, launch=call)
    return _model(scene.timeline(), facts, host=counters)


def test_recompilation_names_the_argument_that_changed() -> None:
    change = JaxChange(argument="x", what="shape", before="float32[2,3]", after="float32[2,4]")
    found = sure(_recompiling([5000.0] * 6, changes=[change]), "jax-recompilation")
    assert found.where == ["train.py:7"]
    assert found.relative_to == "step"
    assert found.change == "pad x to a few shapes"
    assert "x was float32[2,3], then float32[2,4]" in found.evidence


def test_recompilation_is_at_the_line_that_calls_the_function() -> None:
    found = sure(_recompiling([5000.0] * 6, where="train.py:30"), "jax-recompilation")
    assert found.where == ["train.py:30", "train.py:7"]


def test_tracing_without_compilation_is_no_recompilation() -> None:
    """Operators outside of jit may trace each time that they run."""
    model = _recompiling([5000.0] * 6)
    assert model.observation is not None and model.observation.jax is not None
    facts = msgspec.structs.replace(
        model.observation.jax, compilations=model.observation.jax.compilations[:1]
    )
    assert (
        finding(_model(model.timeline, facts, host=model.host_counters), "jax-recompilation")
        is None
    )


def test_function_jitted_in_the_loop_is_reported() -> None:
    found = sure(_recompiling([5000.0] * 6, is_new=True), "jax-recompilation")
    assert "before the loop" in found.change


def test_compilation_in_other_steps_is_a_share_of_the_run() -> None:
    compiled = [0.0, 0.0, 5000.0, 0.0, 7000.0, 0.0, 0.0]
    change = JaxChange(argument="n", what="value", before="1", after="2")
    found = sure(_recompiling(compiled, changes=[change]), "jax-recompilation")
    assert found.relative_to == "run"
    assert found.saving_ns.expected == 12_000 * US
    assert "array instead of a static argument" in found.change


def test_copies_of_undonated_state_are_saved() -> None:
    copy = OpCall(
        name="hlo::copy",
        args=(tensor(64, 64),),
        hlo=HloInstruction(name="copy.1", opcode="copy", copies_argument=True),
    )
    timeline = _programs((GELU, "", 300.0), (copy, "", 500.0))
    kept = JaxFacts(donates=False, carried_bytes=2**24)
    found = sure(_model(timeline, kept), "jax-no-donation")
    assert 400 * US < found.saving_ns.expected <= 520 * US
    donated = JaxFacts(donates=True, carried_bytes=2**24)
    assert finding(_model(timeline, donated), "jax-no-donation") is None


def test_transposed_cache_is_found_in_inference_only() -> None:
    moved = OpCall(
        name="hlo::fusion(transpose)",
        args=(tensor(4, 1024, 6, 32), tensor(4, 6, 32, 1024)),
        hlo=HloInstruction(name="fusion.1", opcode="fusion", transposes_argument=True),
    )
    timeline = _programs((GELU, "", 300.0), (moved, "", 500.0))
    found = sure(_model(timeline), "jax-transposed-arguments")
    assert found.where == ["train.py:3"]
    assert 400 * US < found.saving_ns.expected <= 520 * US
    assert "[4, 6, 32, 1024], as it is read, instead of [4, 1024, 6, 32]" in found.change
    phases = np.full(len(timeline.device), Phase.BACKWARD, np.int8)
    device = msgspec.structs.replace(timeline.device, phase=phases)
    training = msgspec.structs.replace(timeline, device=device)
    assert finding(_model(training), "jax-transposed-arguments") is None


def test_collectives_that_reshard_are_found_at_their_line() -> None:
    moved = OpCall(
        name="hlo::all-to-all",
        args=(tensor(64, 64),),
        hlo=HloInstruction(name="all-to-all.1", opcode="all-to-all", reshards=True),
    )
    assert moved.hlo is not None
    asked = msgspec.structs.replace(moved, hlo=msgspec.structs.replace(moved.hlo, reshards=False))
    found = sure(_model(_programs((GELU, "", 300.0), (moved, "", 500.0))), "jax-resharding")
    assert found.where == ["train.py:3"]
    assert 300 * US < found.saving_ns.expected <= 500 * US
    assert (
        finding(_model(_programs((GELU, "", 300.0), (asked, "", 500.0))), "jax-resharding") is None
    )


def _waiting(phase: Phase) -> StepModel:
    """A program whose operators have a phase, and a host that fetches its result."""
    timeline = _programs(*((GELU, "", 100.0) for _ in range(8)))
    device = timeline.device
    phases = np.full(len(device), phase, np.int8)
    return _model(
        msgspec.structs.replace(timeline, device=msgspec.structs.replace(device, phase=phases))
    )


def test_a_program_with_a_backward_pass_is_no_inference() -> None:
    assert not is_inference(_waiting(Phase.BACKWARD))
    assert is_inference(_waiting(Phase.FORWARD))


@pytest.mark.parametrize("phase", [Phase.BACKWARD, Phase.FORWARD])
def test_advice_about_fetched_values_uses_terms_of_jax(phase: Phase) -> None:
    scene = Scene(end=1000)
    call = scene.on_host(0, 300, HostKind.OP, "PjitFunction(step)")
    scene.on_device(100, 800, launch=call)
    scene.on_host(310, 810, HostKind.SYNC, "PjRtBuffer::ToLiteral")
    timeline = scene.timeline()
    device = msgspec.structs.replace(
        timeline.device, phase=np.full(len(timeline.device), phase, np.int8)
    )
    model = _model(msgspec.structs.replace(timeline, device=device))
    found = host_sync.detect(model)
    assert found is not None
    assert "non_blocking" not in found.change
    assert ("float(loss)" in found.change) is (phase is Phase.BACKWARD)
