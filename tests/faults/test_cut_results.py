"""Results of which a slice is read, on steps made by hand."""

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

TOKENS, WIDTH, WORDS = 64, 128, 1024
ALL, LAST = TOKENS * WORDS, WORDS


def at(storage: int, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype, storage=storage)


def steps(*calls: tuple[str, int, tuple[Argument, ...]]) -> StepModel:
    """Operators of 1 ms that make so many values; the first makes memory 101, the second 102."""
    scene = Scene(end=1_000 * len(calls))
    for index, (name, _, args) in enumerate(calls):
        call = OpCall(name=f"aten::{name}", args=args)
        scene.on_host(1_000 * index, 1_000 * index + 1_000, call=call)
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(
            row=np.arange(len(calls), dtype=np.int32),
            storage=np.arange(101, 101 + len(calls), dtype=np.int64),
            bytes=np.array([4 * made for _, made, _ in calls], np.int64),
        ),
    )
    return step_of(timeline, [at % 3 for at in range(len(calls))])


HEAD = ("mm", ALL, (at(1, TOKENS, WIDTH), at(2, WIDTH, WORDS)))
ONE_ROW = ("exp", LAST, (at(101, 1, WORDS),))


@pytest.mark.parametrize(
    "made",
    [HEAD, ("exp", ALL, (at(1, TOKENS, WORDS),)), ("mul", ALL, (at(1, TOKENS, WORDS),))],
)
@pytest.mark.parametrize(
    "reader", [ONE_ROW, ("masked_fill_", 0, (at(9, 1, WORDS), at(101, 1, WORDS), 0.0))]
)
def test_a_result_of_which_one_row_is_read_is_sliced_first(
    made: tuple[str, int, tuple[Argument, ...]], reader: tuple[str, int, tuple[Argument, ...]]
) -> None:
    found = sure(steps(made, reader), "cut-results")
    assert 0.5e6 < found.saving_ns.expected < found.saving_ns.high < 1e6
    assert found.evidence is not None and "1.6%" in found.evidence


@pytest.mark.parametrize(
    "readers",
    [
        # all of it
        [("exp", ALL, (at(101, TOKENS, WORDS),))],
        # all of it in parts
        [("exp", ALL // 2, (at(101, TOKENS // 2, WORDS),))] * 2,
        # in a list, whose addresses are not recorded
        [ONE_ROW, ("cat", ALL, ((Tensor(shape=(TOKENS, WORDS), dtype=""),), 0))],
        # a part of it is changed in place
        [("mul_", 0, (at(101, 1, WORDS),))],
        # nothing that an operator reads
        [("exp", ALL, (at(9, TOKENS, WORDS),))],
    ],
)
def test_a_result_that_is_used_is_kept(
    readers: list[tuple[str, int, tuple[Argument, ...]]],
) -> None:
    assert finding(steps(HEAD, *readers), "cut-results") is None


def test_what_needs_its_whole_input_cannot_be_cut() -> None:
    step = steps(("_softmax", ALL, (at(1, TOKENS, WORDS), 0, False)), ONE_ROW)
    assert finding(step, "cut-results") is None
