"""Operators that are shown to the profiler behave as they did, and nothing of it stays behind."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.live.operators import show_operators  # noqa: E402
from boundby.capture.live.torch_device import TorchDevice  # noqa: E402
from boundby.capture.live.torch_profiler import TorchProfiler  # noqa: E402


@pytest.fixture
def shown() -> Iterator[None]:
    swaps = show_operators(torch)
    yield
    swaps.undo()


@pytest.mark.usefixtures("shown")
def test_the_class_gives_out_its_own_methods() -> None:
    assert torch.Tensor.__getitem__ is torch._C.TensorBase.__getitem__
    assert torch.Tensor.__add__ is torch._C.TensorBase.__add__
    assert torch.Tensor.T is torch._C.TensorBase.T


def test_torch_functions_are_handed_on_as_they_were() -> None:
    class Logged(torch.Tensor):  # type: ignore[misc]
        seen: list[Any] = []

        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            cls.seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)

    def use() -> list[Any]:
        Logged.seen.clear()
        x = torch.ones(2, 2).as_subclass(Logged)
        y = -(x @ x.T + 1)[0]
        y[0] = 3
        y += 2 * y
        assert isinstance(y, Logged)
        assert bool(torch.all(y == y))
        assert float(y[0]) == 9
        return list(Logged.seen)

    plain = use()
    swaps = show_operators(torch)
    shown = use()
    swaps.undo()
    assert shown == plain


@pytest.mark.usefixtures("shown")
def test_nothing_of_ours_stands_around_an_operator() -> None:
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError) as caught:
        x @ torch.ones(7)
    assert [entry.path for entry in caught.traceback] == [Path(__file__)]
    with pytest.raises(TypeError, match="unsupported operand"):
        x + object()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        x[torch.zeros(2, dtype=torch.uint8)]
    assert {warning.filename for warning in warned} == {__file__}
    z = torch.zeros(2, dtype=torch.complex64)
    z.imag = torch.ones(2)
    assert z.imag.tolist() == [1, 1]
    with pytest.raises(AttributeError):
        x.T = x


def test_everything_is_put_back() -> None:
    before = dict(vars(torch.Tensor))
    swaps = show_operators(torch)
    during = dict(vars(torch.Tensor))
    swaps.undo()
    assert len([name for name in during if during[name] is not before.get(name)]) > 40
    assert dict(vars(torch.Tensor)) == before


def test_a_failed_start_leaves_the_class_alone(tmp_path: Path) -> None:
    before = dict(vars(torch.Tensor))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not TorchProfiler(torch, TorchDevice(torch), tmp_path).start()
        assert dict(vars(torch.Tensor)) == before


def test_a_script_that_profiles_ends_ours_and_gets_its_tensors_back(tmp_path: Path) -> None:
    before = dict(vars(torch.Tensor))
    ours = TorchProfiler(torch, TorchDevice(torch), tmp_path)
    assert ours.start()
    assert dict(vars(torch.Tensor)) != before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert dict(vars(torch.Tensor)) == before
    assert ours.problem is not None


def test_a_profiler_of_the_scripts_that_warms_up_is_left_alone(tmp_path: Path) -> None:
    """It is prepared and not yet enabled: ours in between would break it, and the process."""
    prepare = torch.autograd.profiler._prepare_profiler
    ours = TorchProfiler(torch, TorchDevice(torch), tmp_path)
    theirs = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=1),
    )
    theirs.start()
    assert not ours.start()
    assert ours.problem is not None and "running already" in ours.problem
    theirs.step()
    torch.ones(3).cos()
    theirs.stop()
    assert any(event.key == "aten::cos" for event in theirs.key_averages())
    # What is over is nobody's.
    assert ours.start()
    ours.stop()
    assert torch.autograd.profiler._prepare_profiler is prepare
