"""Products with one-hot rows, on steps made by hand."""

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

ROWS, CODES = 1024, 256


def at(storage: int, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype, storage=storage)


def steps(*calls: tuple[str, tuple[Argument, ...]]) -> StepModel:
    """Operators of 1 ms; the first makes memory 101, the second 102 and so on."""
    scene = Scene(end=1_000 * len(calls))
    for index, (name, args) in enumerate(calls):
        call = OpCall(name=f"aten::{name}", args=args)
        scene.on_host(1_000 * index, 1_000 * index + 1_000, call=call)
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(
            row=np.arange(len(calls), dtype=np.int32),
            storage=np.arange(101, 101 + len(calls), dtype=np.int64),
            bytes=np.full(len(calls), 4 * ROWS * CODES, np.int64),
        ),
    )
    return step_of(timeline, [at % 3 for at in range(len(calls))])


IDS, TABLE = at(1, ROWS, dtype="int64"), at(2, CODES, 64)
EYE, ZEROS = ("eye", (CODES,)), ("zeros", ((ROWS, CODES),))
RANGE = ("arange", (CODES,))
COLUMN, NUMBERS = at(1, ROWS, 1, dtype="int64"), at(101, CODES, dtype="int64")
PRODUCT = ("mm", (at(102, ROWS, CODES), TABLE))


@pytest.mark.parametrize(
    "calls",
    [
        [EYE, ("index", (at(101, CODES, CODES), (IDS,))), PRODUCT],
        [EYE, ("index", (at(101, CODES, CODES),)), PRODUCT],
        [EYE, ("embedding", (at(101, CODES, CODES), IDS)), PRODUCT],
        [
            ZEROS,
            ("scatter", (at(101, ROWS, CODES), 1, COLUMN, 1)),
            ("mm", (at(102, ROWS, CODES), TABLE)),
        ],
        [RANGE, ("eq", (COLUMN, NUMBERS)), PRODUCT],
    ],
)
def test_one_hot_rows_are_found_however_they_are_made(
    calls: list[tuple[str, tuple[Argument, ...]]],
) -> None:
    found = sure(steps(*calls), "one-hot-products")
    assert found.where[:3] == ["train.py:1", "train.py:2", "train.py:3"]
    assert found.saving_ns.expected > 0.8 * 3e6


@pytest.mark.parametrize(
    "calls",
    [
        # Rows of a table.
        [("relu", (TABLE,)), ("index", (at(101, CODES, CODES), (IDS,))), PRODUCT],
        # Several ones in a row are the edges of a graph.
        [ZEROS, ("scatter", (at(101, ROWS, CODES), 1, at(1, ROWS, 5), 1)), PRODUCT],
        # Masks of pairs with one label.
        [RANGE, ("eq", (COLUMN, at(1, 1, ROWS, dtype="int64"))), PRODUCT],
        # One-hot rows that no product reads.
        [EYE, ("index", (at(101, CODES, CODES), (IDS,))), ("relu", (at(102, ROWS, CODES),))],
    ],
)
def test_other_rows_are_left_alone(calls: list[tuple[str, tuple[Argument, ...]]]) -> None:
    assert finding(steps(*calls), "one-hot-products") is None
