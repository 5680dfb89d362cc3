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

from boundby.picture import Change, Picture
from boundby.remedies.remedy import Imagined, Remedy
from boundby.remedies.variants import padded, timed_ratio

_TILE = 8
_PADDED = 64
# Only products this far under their roof; others cope with their shape.
_SLOW = 0.6
# Of the roof, as whole products of this size are seen to reach it.
_WORST, _EXPECTED, _BEST = 0.65, 0.85, 1.0
_LARGE = 256


def imagine(picture: Picture) -> Imagined | None:
    odd = _odd_products(picture)
    if not odd:
        return None
    wanted = max(extent for extents in odd.values() for extent in extents)
    return Imagined(
        worst=Change(work_ns=_times(picture, odd, _WORST)),
        expected=Change(work_ns=_times(picture, odd, _EXPECTED)),
        best=Change(work_ns=_times(picture, odd, _BEST)),
        where=picture.lines(picture.works[index] for index in odd)[:3],
        change=f"vocabulary = {_round_up(wanted)}  # instead of {wanted}: a multiple of {_PADDED}",
        assumes="the dimension may be padded and what is added is masked or never used",
    )


def padded_times(picture: Picture) -> dict[int, float]:
    """What the odd products would take with padded dimensions, by work."""
    return _times(picture, _odd_products(picture), _EXPECTED)


def _odd_products(picture: Picture) -> dict[int, set[int]]:
    """Slow products in 16-bit types, each with its large dimensions that fit no tile."""
    odd: dict[int, set[int]] = {}
    for index, work in enumerate(picture.works):
        call = picture.call(work)
        if work.op_class != "contraction" or call is None or not work.floor_ns:
            continue
        found = {
            extent
            for tensor in call.tensors
            if tensor.dtype in ("bfloat16", "float16", "float8")
            for extent in tensor.shape[-2:]
            if extent > _LARGE and extent % _TILE
        }
        if found and work.floor_ns < _SLOW * work.ns:
            odd[index] = found
    return odd


def _times(picture: Picture, odd: dict[int, set[int]], efficiency: float) -> dict[int, float]:
    """Timed with padded dimensions where the device is at hand; else from the roof."""
    work_ns = {}
    for index, extents in odd.items():
        work = picture.works[index]
        ratio = timed_ratio(picture, work, padded({n: _round_up(n) for n in extents}))
        reached = (work.floor_ns or work.ns) / efficiency
        if ratio is not None:
            reached = work.ns * ratio * _EXPECTED / efficiency
        work_ns[index] = min(work.ns, reached)
    return work_ns


def _round_up(extent: int) -> int:
    return -(-extent // _PADDED) * _PADDED


REMEDY = Remedy(fault="wasted-tiles", group="compute", document=__doc__, imagine=imagine)
