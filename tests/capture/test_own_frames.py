"""Warnings name the line that they would name without boundby's hooks."""

import warnings
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.own_files import is_own_file  # noqa: E402
from boundby.capture.torch.hooks import Hooks  # noqa: E402
from tests.capture.test_live_hooks import Events  # noqa: E402


class Warns(torch.nn.Module):  # type: ignore[misc]
    """Warns about each of the callers above its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: Any) -> Any:
        for level in range(1, 5):
            warnings.warn(f"frame {level}", stacklevel=level)
        return self.weight * x


class Stops(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Any = None) -> None:
        for level in range(1, 4):
            warnings.warn(f"step {level}", stacklevel=level)


def places() -> list[tuple[str, int]]:
    """The file and line of every warning of a step."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = Warns()
        optimizer = Stops(module.parameters(), lr=0.1)
        module(torch.ones(1)).sum().backward()
        optimizer.step()
    return [(one.filename, one.lineno) for one in caught]


def test_warnings_name_the_same_line_with_hooks() -> None:
    expected = places()
    assert (__file__, places.__code__.co_firstlineno + 6) in expected
    hooks = Hooks()
    hooks.install(torch)
    hooks.watcher = Events()
    try:
        assert places() == expected
    finally:
        hooks.remove()


def test_frame_skipped_by_warnings_is_recognised_as_own() -> None:
    code = Hooks.install.__code__
    assert code.co_filename != __file__
    assert is_own_file(code.co_filename)
    # As torch's profiler shortens it.
    assert is_own_file(code.co_filename[code.co_filename.rindex("boundby/capture") :])
