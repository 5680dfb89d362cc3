"""Masks of dropout on a CPU."""

import pytest

from boundby.faults import slow_dropout
from boundby.fixes.dropout import SMALLEST_WORD
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import HostKind, OpCall, Tensor
from tests.faults.step_models import finding, step_model_of, sure
from tests.timelines import US, Scene, tensor

DRAW = OpCall(name="aten::bernoulli_", args=(tensor(1000, 400), 0.9))


def scene(*, on_device: bool = False) -> Scene:
    made = Scene(end=1000)
    made.on_host(0, 400, call=DRAW)
    made.on_host(400, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    if on_device:
        launch = made.on_host(10, 20, HostKind.LAUNCH, "cudaLaunchKernel")
        made.on_device(30, 390, launch=launch)
    return made


def test_time_of_random_words_remains() -> None:
    step_model = step_model_of(scene().timeline())
    drawn = sum(work.ns for work in step_model.op_records if "bernoulli" in work.name)
    guess = sure(step_model, "slow-dropout")
    assert guess.saving_ns.expected == pytest.approx(0.6 * drawn, rel=0.01)
    words = Tensor(shape=(100_000,), dtype="int64", strides=(1,))
    timed = OpBenchmark(name="aten::random_", args=(words, SMALLEST_WORD, None))
    step_model.timings.results[timed] = 50 * US
    found = slow_dropout.detect(step_model)
    assert found is not None
    more = step_model.machine.copy_ns(8 * 400_000) or 0.0
    asking = 2 * (step_model.machine.overheads.eager_op_ns or 0.0)
    assert step_model.saving(found.expected) == pytest.approx(drawn - 50 * US - asking - more)


def test_gpu_dropout_is_not_reported() -> None:
    assert finding(step_model_of(scene(on_device=True).timeline()), "slow-dropout") is None


def test_dropout_in_compiled_code_is_not_reported() -> None:
    """Both together were as slow as neither (a small decoder): they are not added up."""
    assert {"unfused-operators", "far-from-roof"} <= set(slow_dropout.FAULT.excludes)
