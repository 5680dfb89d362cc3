"""The recorder on real eager loops: optimizers inside backward, threads, what is missing."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.process.plan import Plan  # noqa: E402
from boundby.capture.torch import profiler as torch_profiler  # noqa: E402
from boundby.capture.torch.hooks import Hooks  # noqa: E402
from boundby.capture.torch.object_ids import ObjectIds  # noqa: E402
from boundby.capture.torch.profiler_tree import read_profiler_tree  # noqa: E402
from boundby.capture.torch.recorder import Recorder  # noqa: E402
from boundby.runtime.float32_settings import float32_allowed  # noqa: E402

PLAN = Plan(warmup=2, clean=3, issue=2, profiled=0)


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    made = Hooks()
    made.install(torch)
    yield made
    made.remove()


def watch(hooks: Hooks, folder: Path, plan: Plan = PLAN) -> Recorder:
    def enough() -> None:
        raise SystemExit(0)

    recorder = Recorder(torch, plan=plan, step_by="auto", folder=folder, on_done=enough)
    hooks.watcher = recorder
    return recorder


def linear(outputs: int = 4) -> Any:
    return torch.nn.Linear(4, outputs)


def test_optimizer_inside_backward_ends_the_step_after_backward(
    hooks: Hooks, tmp_path: Path
) -> None:
    recorder = watch(hooks, tmp_path)
    model = torch.nn.Sequential(linear(), linear(), linear())
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def fire(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(fire)
    finished = 0
    with pytest.raises(SystemExit):
        for _ in range(50):
            model(torch.ones(2, 4)).mean().backward()
            finished += 1
    taken = recorder.capture()
    assert finished == 2 + 3 + 2 - 1
    assert taken.clean.keys() == {"train 2x4"}
    assert taken.phases.keys() == {"other", "forward", "backward"}


def test_generator_and_critic_updates_are_one_step(hooks: Hooks, tmp_path: Path) -> None:
    recorder = watch(hooks, tmp_path)
    models = [linear(), linear(1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    iterations = 0
    with pytest.raises(SystemExit):
        for _ in range(50):
            for _ in range(5):
                models[1](models[0](torch.ones(2, 4)).detach()).mean().backward()
                optimizers[1].step()
            models[1](models[0](torch.ones(2, 4))).mean().backward()
            optimizers[0].step()
            iterations += 1
    assert iterations == 2 + 3 + 2 - 1
    assert len(recorder.capture().clean["train 2x4"]) == 3


def test_weight_averaging_is_not_a_step(hooks: Hooks, tmp_path: Path) -> None:
    recorder = watch(hooks, tmp_path)
    model = linear()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SystemExit):
        for _ in range(50):
            model(torch.ones(2, 4)).mean().backward()
            optimizer.step()
            average.update_parameters(model)
            with torch.no_grad():
                average(torch.ones(2, 4))
    taken = recorder.capture()
    assert taken.main_kind == "train 2x4"
    assert len(taken.clean["train 2x4"]) == 3


def test_last_step_on_another_thread_ends_that_thread(hooks: Hooks, tmp_path: Path) -> None:
    recorder = watch(hooks, tmp_path)
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []

    def work() -> None:
        with contextlib.suppress(SystemExit):
            for number in range(50):
                model(torch.ones(2, 4)).mean().backward()
                optimizer.step()
                steps.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(steps) == 2 + 3 + 2 - 1
    assert len(recorder.capture().clean["train 2x4"]) == 3


def test_running_graph_capture_is_not_disturbed(
    hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = watch(hooks, tmp_path)
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monkeypatch.setattr(type(recorder._device), "is_capturing", True)
    for _ in range(20):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    assert not any(recorder.finder.seen.values())


def test_incomplete_profile_is_written(hooks: Hooks, tmp_path: Path) -> None:
    recorder = watch(hooks, tmp_path, Plan(warmup=1, clean=1, issue=0, profiled=5))
    model = linear()
    for _ in range(6):
        model(torch.ones(2, 4))
    taken = recorder.capture()
    assert taken.trace is not None
    assert taken.trace.stat().st_size
    assert not torch.autograd._profiler_enabled()
    assert taken.profiled == ["forward 2x4"] * 3
    assert "ended during its profiled steps" in taken.notes[0].text


def test_one_step_is_profiled_if_steps_make_very_many_calls(
    hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_profiler, "_MOST_CALLS", 5_000)
    recorder = watch(hooks, tmp_path, Plan(warmup=2, clean=5, issue=0, profiled=3))
    model = linear()
    with pytest.raises(SystemExit):
        for _ in range(20):
            model(torch.ones(2, 4))
            for letter in "boundby" * 10_000:
                letter.isalnum()
    taken = recorder.capture()
    assert taken.profiled_steps == [0]
    assert not taken.notes
    assert len(read_profiler_tree(taken.results).operators) > 0


def test_settings_are_those_of_the_measured_steps(hooks: Hooks, tmp_path: Path) -> None:
    """Where a script uses torch's new switches, reading the old ones raises."""
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has the old switches alone")
    recorder = watch(hooks, tmp_path, Plan(warmup=1, clean=1, issue=0, profiled=1))
    products, matmul = torch.backends.mkldnn.matmul, torch.backends.cuda.matmul
    before = products.fp32_precision, matmul.fp32_precision
    products.fp32_precision, matmul.fp32_precision = "bf16", "tf32"
    try:
        with pytest.raises(SystemExit):
            for _ in range(20):
                linear()(torch.ones(2, 4))
                recorder.mark()
        with pytest.raises(RuntimeError):
            _ = matmul.allow_tf32
    finally:
        products.fp32_precision, matmul.fp32_precision = before
    read = recorder.capture().settings["float32"]
    assert read["cpu"]["products"] == "bfloat16"
    assert read["cuda"]["products"] == "tf32"


def test_settings_are_recorded_without_a_profile(hooks: Hooks, tmp_path: Path) -> None:
    recorder = watch(hooks, tmp_path, Plan(warmup=1, clean=50, issue=0, profiled=1))
    for _ in range(5):
        recorder.mark()
    assert recorder.capture().settings["float32"] == float32_allowed(torch)


def test_object_ids_are_not_reused() -> None:
    keys = ObjectIds()
    numbers = {keys.of(linear()) for _ in range(20)}
    assert len(numbers) == 20
    assert set(keys.gone) == numbers
    kept = linear()
    assert keys.of(kept) == keys.of(kept)
    # What cannot be weakly referred to is known by its address.
    assert keys.of(unweak := (1, 2)) == keys.of(unweak)
