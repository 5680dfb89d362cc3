"""A product with a dimension that does not fit the matrix units' tiles.

What it sees
    Contractions with an odd dimension, a vocabulary of 50257 or 30522 most often, that run far
    under the roof.

Why it costs time
    The matrix units work on whole tiles, and load rows that start at multiples of 16 bytes. A
    dimension that is no multiple of 8 (in 16-bit types) makes the library fall back to kernels
    that load element by element: on an H200 a product of 4096 x 1024 x 30522 ran at 32% of the
    roof, and at 98% with 30528.

The change
    Round the dimension up to a multiple of 64: pad the vocabulary and mask the extra logits.
    `torch.compile` pads such products by itself.

When it does not help
    When the product is memory-bound already, or the host is the limit.

Proven on
    Not yet.
"""

from __future__ import annotations

from boundby.model import Tensor
from boundby.picture import Change, Picture
from boundby.remedies.remedy import Imagined, Remedy

_TILE = 8
_PADDED = 64
# Only products this far under their roof; others cope with their shape.
_SLOW = 0.6
# Of the roof, as whole products of this size are seen to reach it.
_WORST, _EXPECTED, _BEST = 0.65, 0.85, 1.0
_LARGE = 256


def imagine(picture: Picture) -> Imagined | None:
    odd: dict[int, float] = {}
    dimensions: set[int] = set()
    for index, work in enumerate(picture.works):
        call = picture.call(work)
        if work.op_class != "contraction" or call is None or not work.floor_ns:
            continue
        found = {
            extent
            for tensor in call.tensors
            if tensor.dtype in ("bfloat16", "float16", "float8")
            for extent in _product_dimensions(tensor)
            if extent > _LARGE and extent % _TILE
        }
        if found and work.floor_ns < _SLOW * work.ns:
            odd[index] = work.floor_ns
            dimensions |= found
    if not odd:
        return None
    wanted = max(dimensions)
    padded = -(-wanted // _PADDED) * _PADDED
    return Imagined(
        worst=_padded(picture, odd, _WORST),
        expected=_padded(picture, odd, _EXPECTED),
        best=_padded(picture, odd, _BEST),
        where=picture.lines(picture.works[index] for index in odd)[:3],
        change=f"vocabulary = {padded}  # instead of {wanted}: a multiple of {_PADDED}",
        assumes="the dimension may be padded and what is added is masked or never used",
    )


def _product_dimensions(tensor: Tensor) -> tuple[int, ...]:
    return tensor.shape[-2:]


def _padded(picture: Picture, odd: dict[int, float], efficiency: float) -> Change:
    work_ns = {
        index: min(picture.works[index].ns, floor / efficiency) for index, floor in odd.items()
    }
    return Change(work_ns=work_ns)


REMEDY = Remedy(fault="wasted-tiles", group="compute", document=__doc__, imagine=imagine)
