"""The tensors of an operator in a real profile: which are the same, and which only look so."""

from collections.abc import Callable
from typing import Any

import pytest

from boundby import ops as costs
from boundby.model import Cost, OpCall

torch: Any = pytest.importorskip("torch")

from boundby.capture.torch.profiler_tree import read_profiler_tree  # noqa: E402

ROWS, WIDTH = 1000, 100
WHOLE = 4 * ROWS * WIDTH


def profiled(function: Callable[[], object]) -> Any:
    with torch.profiler.profile(record_shapes=True, profile_memory=True) as profiler:
        function()
    return profiler.profiler.kineto_results


def cost_of(name: str, function: Callable[[], object]) -> Cost:
    """What the only call of an operator costs."""
    results = profiled(function)
    # Driver calls have identifiers that may equal those of operators.
    named = {(event.correlation_id(), event.name()) for event in results.events()}
    operators = read_profiler_tree(results).operators
    (found,) = (operators[number] for number in operators if (number, name) in named)
    cost = costs.cost(OpCall(name=name, args=found.args))
    assert cost is not None
    return cost


def test_halves_of_a_tensor_are_both_read() -> None:
    x = torch.rand(ROWS, WIDTH)
    a, b = x.chunk(2)
    assert cost_of("aten::mul", lambda: a * b).bytes_read == WHOLE


def test_one_tensor_given_twice_is_read_once() -> None:
    half, _ = torch.rand(ROWS, WIDTH).chunk(2)
    found = cost_of("aten::mul", lambda: half * half)
    assert (found.bytes_read, found.upper_bound) == (WHOLE / 2, False)


def test_overlapping_views_of_a_small_storage_are_one_tensor() -> None:
    def gram() -> object:
        x = torch.rand(ROWS, WIDTH)
        return torch.mm(x.t(), x)

    found = cost_of("aten::mm", gram)
    assert (found.bytes_read, found.upper_bound) == (WHOLE, False)


def test_views_of_a_storage_of_unknown_size_may_be_two_tensors() -> None:
    x = torch.rand(ROWS, WIDTH)
    found = cost_of("aten::mul", lambda: x * x.detach())
    assert (found.bytes_read, found.upper_bound) == (2 * WHOLE, True)
