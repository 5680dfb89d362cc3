"""A matrix product has a dimension that does not fit the tiles of the matrix units.

What it looks for
    Matrix products in 16 bits whose rows in memory have an odd length, usually a vocabulary of
    50257 or 30522, and that run far below the roof. An odd number of rows has no such effect.

Why it costs time
    The matrix units work on whole tiles and load rows that start at multiples of 16 bytes. If a
    dimension is not a multiple of 8 (in 16-bit types), the library uses kernels that load element
    by element: on an H200 a product of 4096 x 1024 x 30522 ran at 32% of the roof, and at 98% with
    30528.

What to change
    Round the dimension up to a multiple of 64: pad the vocabulary and mask the extra logits.
    `torch.compile` pads such products automatically.

When it does not help
    When the product is memory-bound, or the host limits the step.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import compiled
from boundby.model import OpCall, Tensor
from boundby.model.assumptions.detection import SLOW_PRODUCT
from boundby.model.assumptions.device import WHOLE_TILE_SHARE
from boundby.step.model import Edit, StepView
from boundby.step.op_variants import padded, timed_ratio

_TILE = 8  # elements; documented for tensor cores
_PADDED = 64  # proposed multiple
_LARGE = 256  # shorter dimensions are left out: padding costs them too much
_VOCABULARY = 8192  # dimensions at least this large are called a vocabulary
# The two matrices of each product; of `linear`, the second is transposed.
_OPERANDS = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::linear": (0, 1),
    "aten::addmm": (1, 2),
    "aten::addmm_": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::baddbmm_": (1, 2),
}
_BATCHED = ("aten::bmm", "aten::baddbmm", "aten::baddbmm_")


def detect(step: StepView) -> Detection | None:
    odd = _odd_products(step)
    if not odd:
        return None
    wanted = max(extent for extents in odd.values() for extent in extents)
    return Detection(
        low=Edit.set_time(_times(step, odd, WHOLE_TILE_SHARE.low)),
        expected=Edit.set_time(_times(step, odd, WHOLE_TILE_SHARE.value)),
        high=Edit.set_time(_times(step, odd, WHOLE_TILE_SHARE.high)),
        where=step.lines(step.op_records[index] for index in odd)[:3],
        change=f"{_word(step, odd, wanted)} = {_round_up(wanted)}"
        f"  # instead of {wanted}: a multiple of {_PADDED}",
        assumes="the dimension may be padded, and the padding is masked or unused",
    )


def padded_times(step: StepView) -> dict[int, float]:
    """The times of the odd products with padded dimensions, by operation."""
    return _times(step, _odd_products(step), WHOLE_TILE_SHARE.value)


def _odd_products(step: StepView) -> dict[int, set[int]]:
    """Slow products in 16-bit types, each with its large dimensions that are no multiple of a
    tile."""
    odd: dict[int, set[int]] = {}
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or not record.floor_ns or record.floor_ns >= SLOW_PRODUCT.value * record.ns:
            continue
        found = odd_extents(call)
        if found:
            odd[index] = found
    return odd


def is_product(call: OpCall) -> bool:
    return call.name in _OPERANDS


def odd_extents(call: OpCall) -> set[int]:
    """The large dimensions that are no multiple of a tile, along which a product's matrices are
    dense.

    Rows of such a length start at unaligned addresses; the number of rows does not matter.
    """
    operands = _operands(call)
    if operands is None or operands[0].dtype not in ("bfloat16", "float16"):
        return set()
    lengths = {_columns(call, operands), *map(_dense_extent, operands)}
    return {extent for extent in lengths if extent and extent > _LARGE and extent % _TILE}


def _operands(call: OpCall) -> tuple[Tensor, Tensor] | None:
    first, second = _OPERANDS.get(call.name, (0, 0))
    if first == second or len(call.tensors) <= second:
        return None
    operands = call.tensors[first], call.tensors[second]
    return operands if all(len(tensor.shape) > 1 for tensor in operands) else None


def _columns(call: OpCall, operands: tuple[Tensor, Tensor]) -> int:
    """The columns of the result, which is dense along them."""
    return operands[1].shape[-2 if call.name == "aten::linear" else -1]


def _dense_extent(matrix: Tensor) -> int | None:
    """The dimension whose length is the distance of two rows; None for a part of wider rows."""
    rows, columns = matrix.shape[-2:]
    if matrix.strides is None or len(matrix.strides) != len(matrix.shape):
        return columns
    if matrix.strides[-2:] == (columns, 1):
        return columns
    return rows if matrix.strides[-2:] == (1, rows) else None


def _word(step: StepView, odd: dict[int, set[int]], wanted: int) -> str:
    """A name for the dimension: the last one of a linear layer has one."""
    calls = [call for index in odd if (call := step.call(step.op_records[index])) is not None]
    made = {
        _columns(call, operands)
        for call in calls
        if call.name not in _BATCHED and (operands := _operands(call)) is not None
    }
    if wanted not in made:
        return "size"
    return "vocabulary" if wanted >= _VOCABULARY else "out_features"


def _times(step: StepView, odd: dict[int, set[int]], efficiency: float) -> dict[int, float]:
    """Benchmarked with padded dimensions if the device is available; otherwise from the
    roofline."""
    op_ns = {}
    for index, extents in odd.items():
        record = step.op_records[index]
        ratio = timed_ratio(step, record, padded({n: _round_up(n) for n in extents}))
        reached = (record.floor_ns or record.ns) / efficiency
        if ratio is not None:
            reached = record.ns * ratio * WHOLE_TILE_SHARE.value / efficiency
        op_ns[index] = min(record.ns, reached)
    return op_ns


def _round_up(extent: int) -> int:
    return -(-extent // _PADDED) * _PADDED


FAULT = Fault(
    id="wasted-tiles",
    title="Matrix dimensions do not fill the hardware tiles",
    kind="tuning",
    group="compute",
    document=__doc__,
    detect=detect,
    fixes=(compiled.COMPILE,),
)
