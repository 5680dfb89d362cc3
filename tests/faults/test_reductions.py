"""Which operators are reductions over rows in generated code."""

from __future__ import annotations

import pytest

from boundby.step.reductions import reduces_over_rows
from tests.ops.builders import call, t


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cos", False),
        ("native_layer_norm", False),
        ("native_group_norm", True),
        ("native_batch_norm", True),
        ("cudnn_batch_norm_backward", True),
        ("native_layer_norm_backward", True),
        ("sum", True),
    ],
)
def test_row_statistics_are_recognised_by_operator(name: str, expected: bool) -> None:
    assert reduces_over_rows(f"aten::{name}", None) is expected


@pytest.mark.parametrize(
    ("shape", "over", "expected"),
    [
        ((4096, 1024), (0,), True),
        ((8, 512, 1024), (0, 1), True),
        ((4096, 1024), (1,), False),
        ((8, 512, 1024), (-2, -1), False),
        ((1_000_000,), None, True),
    ],
)
def test_row_sums_are_distinguished_from_full_sums(
    shape: tuple[int, ...], over: tuple[int, ...] | None, expected: bool
) -> None:
    operator = call("sum", t(*shape), over, False)
    assert reduces_over_rows(operator.name, operator) is expected
