"""Tensors that are kept in lists, on steps made by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.model import Allocations, OpCall, Tensor
from boundby.step.model import StepModel
from tests.faults.program_steps import BIG, step_of
from tests.faults.step_models import finding, sure
from tests.timelines import Scene


def joined(*, count: int = 64, apart: bool = True, made: bool = False) -> StepModel:
    """So many rows joined in 500 us; `apart`: each with its own memory; `made`: in this step."""
    scene, taken = Scene(end=1700), []
    rows = [
        Tensor(shape=(1, 64), dtype="float32", storage=1000 + (at if apart else 0))
        for at in range(count)
    ]
    for at, row in enumerate(rows if made else []):
        call = OpCall(name="aten::randn", args=((1, 64),))
        taken.append((scene.on_host(10 * at, 10 * at + 5, call=call), row.storage, 256))
    scene.on_host(1000, 1500, call=OpCall(name="aten::cat", args=(tuple(rows), 0)))
    taken.append((len(scene.host) - 1, 5000, 256 * count))
    scene.on_host(1500, 1700, call=BIG)
    rows_taken, storages, sizes = (np.array(one, np.int64) for one in zip(*taken, strict=True))
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(row=rows_taken.astype(np.int32), storage=storages, bytes=sizes),
    )
    return step_of(timeline, [0] * (len(scene.host) - 2) + [1, 2])


def test_joined_list_is_replaced_by_rows_of_one_tensor() -> None:
    found = sure(joined(), "joined-lists")
    assert found.where == ["train.py:2"] and "64 tensors" in found.evidence
    assert found.saving_ns.expected > 450e3


@pytest.mark.parametrize(
    "step", [joined(count=8), joined(apart=False), joined(made=True)], ids=["few", "views", "made"]
)
def test_other_joins_are_not_reported(step: StepModel) -> None:
    assert finding(step, "joined-lists") is None
