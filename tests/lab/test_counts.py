"""Operators, nodes and calls of a step: counted, not timed."""

import pytest

torch = pytest.importorskip("torch")

from boundby.lab.counts import count_calls, count_nodes, count_operators  # noqa: E402


def test_views_and_square_roots_are_distinguished() -> None:
    x = torch.ones(4, 8)

    def step() -> None:
        x.t().sqrt().t().view(-1).add_(1.0)

    counts = count_operators(step)
    # sqrt and add_ work; t and view are views. 32 floats are read and written, twice.
    assert (counts.operators, counts.views, counts.bytes) == (2, 3, 2 * 2 * 32 * 4)


def test_foreach_operator_counts_once_per_tensor_on_a_cpu() -> None:
    listed = [torch.ones(2) for _ in range(5)]
    counts = count_operators(lambda: torch._foreach_add_(listed, 1.0))
    assert (counts.operators, counts.views) == (5, 0)


def test_graph_nodes_are_counted_once() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2.0
    # The sum, the addition, the product that both sides share, and where the gradient is kept.
    assert count_nodes((y + y).sum()) == 4


def test_python_and_builtin_calls_are_counted() -> None:
    def inner() -> int:
        return len("abc")

    # The step itself, inner, len; and setprofile, which ends the count.
    assert count_calls(lambda: inner()) == 4
