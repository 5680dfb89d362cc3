"""Launches that generated code takes for reductions, beside the pass that uses them."""

from __future__ import annotations

import pytest

from boundby.model import OpCall
from boundby.step.reductions import reduction_launches, takes_two_passes
from tests.ops.builders import call, t


def summed(shape: tuple[int, ...], *over: int) -> OpCall:
    return call("sum", t(*shape), over or None, False)


def layer_norm_backward(rows: int, width: int) -> OpCall:
    x = t(rows, width)
    return call("native_layer_norm_backward", x, x, (width,))


def is_read_again(operator: OpCall) -> bool:
    return takes_two_passes(operator.name, operator)


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("cos", 0),
        ("native_layer_norm", 0),
        ("native_group_norm", 2),
        ("native_group_norm_backward", 4),
        ("native_batch_norm", 2),
        ("cudnn_batch_norm_backward", 3),
        ("native_layer_norm_backward", 3),
        ("sum", 2),
    ],
)
def test_blocks_that_share_columns_take_launches_of_their_own(name: str, launches: int) -> None:
    assert reduction_launches(f"aten::{name}", None) == launches


@pytest.mark.parametrize(
    ("operator", "launches"),
    [
        (summed((4096, 1024), 0), 2),
        (summed((8, 512, 1024), 0, 1), 2),
        (summed((1024, 1024), 0), 2),
        # Few rows; many columns.
        (summed((128, 768), 0), 0),
        (summed((4096, 30522), 0), 0),
        # Along rows: many of them, few, and one.
        (summed((4096, 1024), 1), 0),
        (summed((1024, 1024), -1), 0),
        (summed((4096, 10_000), -1), 0),
        (summed((8, 1024, 1024), -2, -1), 2),
        (summed((8, 1024), -1), 0),
        (summed((1_000_000,)), 2),
        (summed((1_000_000,), 0), 2),
        (summed((1000,)), 0),
        # Over everything, in another dtype.
        (call("sum", t(4096, 1024), 6), 2),
        (layer_norm_backward(4096, 1024), 3),
        (layer_norm_backward(128, 768), 1),
    ],
)
def test_so_many_as_the_shapes_ask_for(operator: OpCall, launches: int) -> None:
    assert reduction_launches(operator.name, operator) == launches


def test_a_shared_sum_reads_what_its_maker_has_written() -> None:
    assert is_read_again(summed((4096, 1024), 0))
    assert not is_read_again(summed((128, 768), 0))
    assert not is_read_again(summed((4096, 1024), 1))
    assert is_read_again(layer_norm_backward(128, 768))
    assert not takes_two_passes("aten::cos", None)
