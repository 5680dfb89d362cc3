"""Diagnosing from Python: boundby.diagnose and boundby.watch."""

import contextlib
import importlib
import sys
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import boundby  # noqa: E402
from boundby.capture.process.windows import Windows  # noqa: E402
from boundby.model.errors import BoundbyError  # noqa: E402
from tests.machines import round_machine  # noqa: E402


def trainer() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(rows: int) -> None:
        model(torch.ones(rows, 8)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return train


def test_function_is_called_as_often_as_needed() -> None:
    diagnosis = boundby.diagnose(
        trainer(), 4, warmup=2, steps=3, profiled=1, machine=round_machine()
    )
    assert diagnosis.step.kind == "train 4x8"
    assert len(diagnosis.step.samples_ns) == 3
    assert [phase.name for phase in diagnosis.step.phases if phase.name != "other"] == [
        "forward",
        "backward",
        "optimizer",
    ]
    assert diagnosis.step.dilation is not None
    assert "Step train 4x8:" in str(diagnosis)


def test_function_without_modules_is_diagnosed() -> None:
    diagnosis = boundby.diagnose(
        torch.cos, torch.ones(9), warmup=1, steps=3, profiled=0, machine=round_machine()
    )
    assert diagnosis.step.kind == "step"
    assert [phase.name for phase in diagnosis.step.phases] == ["forward"]


def test_loop_can_be_watched_more_than_once() -> None:
    before = torch.nn.Module.__call__, torch.autograd.backward
    for rows in (4, 5):
        train = trainer()
        with boundby.watch(warmup=1, steps=3, profiled=1, machine=round_machine()) as watching:
            for _ in range(50):
                train(rows)
                watching.step()
            assert watching.done
            with pytest.raises(BoundbyError, match="when the `with` block ends"):
                _ = watching.diagnosis
        assert watching.diagnosis.step.kind == f"train {rows}x8"
        assert before == (torch.nn.Module.__call__, torch.autograd.backward)


def test_short_loop_is_profiled() -> None:
    train = trainer()
    with boundby.watch(machine=round_machine()) as watching:
        for _ in range(50):
            train(4)
            watching.step()
    assert watching.done
    assert watching.diagnosis.ops
    assert not any(note.code == "too-few-steps" for note in watching.diagnosis.notes)


def test_loop_that_ends_early_is_diagnosed() -> None:
    train = trainer()
    with boundby.watch(warmup=2, steps=5, machine=round_machine()) as watching:
        for _ in range(5):
            train(4)
            watching.step()
    assert len(watching.diagnosis.step.samples_ns) == 2
    words = "\n".join(note.text for note in watching.diagnosis.notes)
    assert (
        "the loop ended during its clean steps, after 5 steps: at least 6 steps are needed" in words
    )
    assert "--" not in words


def test_loop_without_steps_continues_and_gets_a_hint() -> None:
    with (
        pytest.warns(UserWarning, match=r"call step\(\)"),
        boundby.watch(machine=round_machine()) as watching,
    ):
        trainer()(4)
    with pytest.raises(BoundbyError, match=r"call step\(\)"):
        _ = watching.diagnosis


def test_steps_before_an_exception_are_diagnosed_on_request() -> None:
    train = trainer()
    with (
        contextlib.suppress(KeyError),
        boundby.watch(warmup=2, steps=3, machine=round_machine()) as watching,
    ):
        for _ in range(5):
            train(4)
            watching.step()
        raise KeyError("mine")
    assert len(watching.diagnosis.step.samples_ns) == 2
    assert "after 5 steps" in "\n".join(note.text for note in watching.diagnosis.notes)


@pytest.mark.parametrize("steps", [1, 6])
def test_exception_passes_and_torch_is_restored(steps: int) -> None:
    """Also while the profiler is running."""
    before = torch.nn.Module.__call__
    train = trainer()

    def fail() -> None:
        with boundby.watch(warmup=1, steps=1, machine=round_machine()) as watching:
            for _ in range(steps):
                train(4)
                watching.step()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert torch.nn.Module.__call__ is before
    assert not torch.autograd._profiler_enabled()


def test_step_mark_outside_of_watch_does_nothing() -> None:
    before = torch.nn.Module.__call__
    boundby.step()
    assert torch.nn.Module.__call__ is before


def test_a_model_compiled_before_is_not_compiled_again() -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled_before = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8)), backend=backend)
    rows = torch.ones(4, 8)
    compiled_before(rows)
    compiled_inside = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 4)), backend=backend)
    with boundby.watch(warmup=1, steps=3, profiled=1, machine=round_machine()) as watching:
        for _ in range(10):
            compiled_before(rows)
            compiled_inside(rows)
            watching.step()
    compiled_before(rows)
    compiled_inside(rows)
    reasons = dict(sys.modules["torch._dynamo.utils"].guard_failures)
    assert len(graphs) == 2, reasons
    assert watching.diagnosis.step.kind == "forward 4x8"


def test_loop_continues_if_observation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("not there")

    monkeypatch.setattr(Windows, "_open_profiled", broken)
    taken = 0
    with (
        pytest.warns(
            UserWarning, match=r"observation failed .*: IndexError: not there \(in full: "
        ),
        boundby.watch(warmup=1, steps=3, profiled=1, machine=round_machine()) as watching,
    ):
        train = trainer()
        for _ in range(20):
            train(4)
            watching.step()
            taken += 1
        assert watching.done
    assert taken == 20
    assert len(watching.diagnosis.step.samples_ns) == 3
    assert any("IndexError: not there" in note.text for note in watching.diagnosis.notes)


def test_function_that_cannot_be_observed_raises_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("not there")

    monkeypatch.setattr(Windows, "step_ended", broken)
    with (
        pytest.warns(UserWarning, match="observation failed"),
        pytest.raises(BoundbyError, match="observation failed after 0 steps"),
    ):
        boundby.diagnose(trainer(), 4, machine=round_machine())


def test_public_functions_are_callable_beside_packages_of_the_same_name() -> None:
    importlib.import_module("boundby.step.model")
    importlib.import_module("boundby.prove.candidates")
    boundby.step()
    assert callable(boundby.prove)
