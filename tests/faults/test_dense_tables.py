"""Tables of which a step uses a few rows."""

from typing import Any

import msgspec
import numpy as np
import pytest

from boundby.model import Allocations, OpCall, Phase, Tensor, Timeline
from tests.faults.step_models import finding, in_phase, step_model_of, sure
from tests.timelines import Scene

ROWS, WIDTH = 1_000_000, 32


def at(storage: int, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype, storage=storage)


def step(*, used: int = 1000, rows: int = ROWS, tied: bool = False) -> Timeline:
    """A gradient filled for 1 ms and made in 0.5, then updated in 3, with a matrix in 2."""
    scene = Scene(end=10_000)
    gradient, weight = at(2, rows, WIDTH), at(3, rows, WIDTH)
    made = OpCall(
        name="aten::embedding_dense_backward",
        args=(at(1, used, WIDTH), at(4, used, dtype="int64"), rows, -1, False),
    )
    outer = scene.on_host(0, 1500, call=made)
    scene.on_host(100, 1100, call=OpCall(name="aten::fill_", args=(gradient, 0.0)))
    if tied:
        scene.on_host(
            1600, 2000, call=OpCall(name="aten::add_", args=(gradient, at(6, rows, WIDTH)))
        )
    update = OpCall(name="aten::add_", args=(weight, gradient))
    scene.on_host(3000, 6000, call=update)
    scene.on_host(
        6000, 8000, call=OpCall(name="aten::add_", args=(at(7, 512, 512), at(8, 512, 512)))
    )
    allocations = Allocations(
        row=np.array([outer], np.int32),
        storage=np.array([2], np.int64),
        bytes=np.array([gradient.bytes], np.int64),
    )
    timeline = msgspec.structs.replace(scene.timeline(), allocations=allocations)
    backward = 3 if tied else 2
    timeline = in_phase(timeline, Phase.BACKWARD, slice(0, backward))
    return in_phase(timeline, Phase.OPTIMIZER, slice(backward, None))


def test_dense_update_is_reduced_to_used_rows() -> None:
    """A thousandth of them, four times as dear: of 4 ms for the table's, 12 us are left."""
    step_model = step_model_of(step())
    found = sure(step_model, "dense-tables")
    asking = 60 * (step_model.machine.overheads.eager_op_ns or 0.0)
    assert found.saving_ns.expected == pytest.approx(4e6 - 12e3 - asking, rel=0.01)
    assert found.change.startswith("nn.Embedding(..., sparse=True)  # its weights to torch.optim.")


@pytest.mark.parametrize(
    "how", [{"used": 200_000}, {"rows": 2000, "used": 10}, {"tied": True}], ids=str
)
def test_used_small_or_shared_table_is_not_reported(how: dict[str, Any]) -> None:
    assert finding(step_model_of(step(**how)), "dense-tables") is None


@pytest.mark.parametrize("whole", [False, True], ids=["of rows", "of the whole table"])
def test_gradients_of_two_lookups_are_added(whole: bool) -> None:
    """Both filled for 1 ms, added in 1, and the table updated in 3: all but a few rows of it."""
    scene = Scene(end=10_000)
    first, second, weight = at(2, ROWS, WIDTH), at(5, ROWS, WIDTH), at(3, ROWS, WIDTH)
    rows = []
    for start, gradient in ((0, first), (2000, second)):
        made = OpCall(
            name="aten::embedding_dense_backward",
            args=(at(1, 500, WIDTH), at(4, 500, dtype="int64"), ROWS, -1, False),
        )
        if whole and gradient is second:
            made = OpCall(name="aten::mm", args=(at(8, ROWS, 2), at(9, 2, WIDTH)))
        rows.append(scene.on_host(start, start + 1500, call=made))
        fill = OpCall(name="aten::fill_", args=(gradient, 0.0))
        scene.on_host(start + 100, start + 1100, call=fill)
    scene.on_host(4000, 5000, call=OpCall(name="aten::add_", args=(first, second)))
    scene.on_host(5000, 8000, call=OpCall(name="aten::add_", args=(weight, first)))
    allocations = Allocations(
        row=np.array(rows, np.int32),
        storage=np.array([2, 5], np.int64),
        bytes=np.array([first.bytes, second.bytes], np.int64),
    )
    timeline = msgspec.structs.replace(scene.timeline(), allocations=allocations)
    timeline = in_phase(timeline, Phase.BACKWARD, slice(0, 5))
    step_model = step_model_of(in_phase(timeline, Phase.OPTIMIZER, slice(5, None)))
    if whole:
        assert finding(step_model, "dense-tables") is None
        return
    found = sure(step_model, "dense-tables")
    asking = 60 * (step_model.machine.overheads.eager_op_ns or 0.0)
    assert found.saving_ns.expected == pytest.approx(6e6 - 4 * 4e3 - asking, rel=0.01)
