"""Much of the computation is on padding.

What it looks for
    Batches of whole numbers whose rows end, or begin, with one repeated value, and batches of
    numbers or vectors whose rows end, or begin, with zeros, as those of sounds and of time series:
    from the values themselves, how long each row is, and how long the batch is.

Why it costs time
    Operators take as long for padding as for data, and attention grows with the square
    of the length.

What to change
    Pad to the longest row of the batch instead of a fixed length. Sort or group rows by length, or
    pack several into one row.

When it does not help
    When a compiled model or a graph needs one length, or the batch is already cut to its longest
    row and its rows are alike.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.model.evidence import Padding
from boundby.step.model import Edit, StepView

# A length of at most this may have another meaning.
_SHORTEST = 8
_NUMBERS = ("int64", "int32")  # of words
_UNTRIMMED = 0.9  # of the longest row and the padding; batches above it are cut to their rows


def detect(step: StepView) -> Detection | None:
    found = step.evidence.padding
    if found is None or found.width <= _SHORTEST:
        return None
    width = _width(step, found)
    packed = 1 - found.share
    trimmed = found.trimmed
    # Within batches of similar lengths, rows differ by half as much.
    grouped = trimmed if trimmed < _UNTRIMMED else (trimmed + packed) / 2
    return Detection(
        low=_cut(step, width, max(trimmed, grouped)),
        expected=_cut(step, width, grouped),
        high=_cut(step, width, packed),
        where=found.where[:4],
        change=f"batch = batch[:, : lengths.max()]  # {found.share:.0%} of it is padding"
        if trimmed < _UNTRIMMED
        else f"# batches of rows of like length: {found.share:.0%} of the positions are padding",
        # No program is wrong for taking its rows in any order.
        kind="mistake" if trimmed < _UNTRIMMED else "tuning",
        assumes=f"rows of {min(found.lengths)} to {max(found.lengths)} positions are typical",
    )


def _width(step: StepView, found: Padding) -> int:
    """The width of the profiled step's rows: where batches are padded to their longest row, it
    differs from that of the batch that was examined. Of all that whole numbers have, the one that
    most of the step depends on."""
    rows, widths = max(1, len(found.lengths)), set[int]()
    for record in step.op_records:
        call = step.call(record)
        for tensor in call.tensors if call is not None else ():
            if tensor.dtype in _NUMBERS and tensor.elements % rows == 0:
                widths.add(tensor.elements // rows)
    if found.width in widths:
        return found.width
    return max(
        (found.width, *sorted(width for width in widths if width > _SHORTEST)),
        key=lambda width: sum(step.op_records[index].ns for index in _with_axis(step, width)),
    )


def _with_axis(step: StepView, width: int) -> dict[int, int]:
    """Operators on tensors with an axis of `width`, and how many such axes."""
    found: dict[int, int] = {}
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or record.phase == Phase.OPTIMIZER:
            continue
        for tensor in call.tensors:
            axes = sum(size == width for size in tensor.shape)
            merged = any(size > width and size % width == 0 for size in tensor.shape)
            if most := max(found.get(index, 0), axes, int(merged)):
                found[index] = most
    return found


def _cut(step: StepView, width: int, left: float) -> Edit:
    """Operators on tensors with an axis of `width`, each in `left` of its time per such axis."""
    axes = _with_axis(step, width)
    return Edit.set_time(
        {index: step.op_records[index].ns * left ** min(2, n) for index, n in axes.items()}
    )


FAULT = Fault(
    id="padding",
    title="Computation on padding",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
)
