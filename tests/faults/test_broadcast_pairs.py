"""Distances and similarities of all pairs of rows, on steps made by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.model import Allocations, OpCall, Tensor
from boundby.model.cost import Argument
from boundby.step.model import StepModel
from tests.faults.program_steps import step_of
from tests.faults.step_models import finding, sure
from tests.timelines import Scene

ROWS, CODES, WIDTH = 1024, 256, 32
A, B = (ROWS, 1, WIDTH), (1, CODES, WIDTH)
PAIRS = (ROWS, CODES, WIDTH)
LAST = (-1,)


def at(storage: int, *shape: int) -> Tensor:
    return Tensor(shape=shape, dtype="float32", storage=storage)


def steps(*calls: tuple[str, tuple[Argument, ...]]) -> StepModel:
    """Operators of 10 ms, each of which reads what the one before it made."""
    scene = Scene(end=10_000 * len(calls))
    for index, (name, more) in enumerate(calls):
        read = (at(100 + index, *PAIRS),) if index else ()
        call = OpCall(name=f"aten::{name}", args=(*read, *more))
        scene.on_host(10_000 * index, 10_000 * index + 10_000, call=call)
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(
            row=np.arange(len(calls), dtype=np.int32),
            storage=np.arange(101, 101 + len(calls), dtype=np.int64),
            bytes=np.full(len(calls), 4 * ROWS * CODES * WIDTH, np.int64),
        ),
    )
    return step_of(timeline, [at % 3 for at in range(len(calls))])


APART = ("sub", (at(1, *A), at(2, *B)))
REST = ("relu", ())


@pytest.mark.parametrize(
    ("calls", "change"),
    [
        ([APART, ("pow", (2,)), ("sum", (LAST, False, None))], "a @ b.mT"),
        ([APART, ("abs", ()), ("sum", (LAST, False, None))], "p=1"),
        ([APART, ("linalg_vector_norm", (2, LAST, False, None))], "a @ b.mT"),
        ([("mul", APART[1]), ("sum", (LAST, False, None))], "a @ b.mT"),
        # A table that `expand` repeats.
        (
            [
                ("sub", (at(1, *A), Tensor(shape=PAIRS, dtype="float32", strides=(0, 32, 1)))),
                ("square", ()),
                ("mean", (LAST, False, None)),
            ],
            "a @ b.mT",
        ),
    ],
)
def test_pair_distances_are_replaced_by_a_product(
    calls: list[tuple[str, tuple[Argument, ...]]], change: str
) -> None:
    found = sure(steps(*calls), "broadcast-pairs")
    assert change in found.change and found.where[0] == "train.py:1"
    assert 0.8 * 1e7 * len(calls) < found.saving_ns.expected < 1e7 * len(calls)


@pytest.mark.parametrize(
    "calls",
    [
        # The differences themselves are used, as the edges of a graph are.
        [APART, ("relu", ()), ("sum", (LAST, False, None))],
        [APART, ("pow", (2,)), ("pow", (2,))],
        # One number for each row, or one for all.
        [APART, ("pow", (2,)), ("sum", ((1,), False, None))],
        [APART, ("pow", (2,)), ("sum", (None,))],
        # A bias: only one of the two is repeated.
        [("sub", (at(1, *PAIRS), at(2, WIDTH))), ("pow", (2,)), ("sum", (LAST, False, None))],
        # A sum of differences needs no pairs, but no product either.
        [APART, ("sum", (LAST, False, None))],
    ],
)
def test_other_uses_of_pairs_are_not_reported(
    calls: list[tuple[str, tuple[Argument, ...]]],
) -> None:
    assert finding(steps(*calls), "broadcast-pairs") is None
