"""Dropout on a CPU with masks of 16 random bits each, drawn four at a time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note

_STEPS = 1 << 16  # probabilities are rounded to this many steps
SMALLEST_WORD = -(1 << 63)  # definition (int64)
# For fewer elements, the additional operators cost as much as drawing takes.
_FEWEST = 4096


@contextlib.contextmanager
def short_masks() -> Iterator[None]:
    """Every dropout of a CPU tensor draws its mask this way."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        swaps.swap(torch.nn.functional, "dropout", functools.partial(_around, torch))

    with when_torch_arrives(arrived):
        yield


def _around(torch: Any, original: Any) -> Any:
    @functools.wraps(original)
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        # In compiled code, generated code draws the masks; subclasses are not changed.
        if torch.compiler.is_compiling() or not (
            type(input) is torch.Tensor
            and training
            and not inplace
            and 0.0 < p < 1.0
            and input.device.type == "cpu"
            and input.is_floating_point()
            and input.numel() >= _FEWEST
        ):
            return original(input, p, training, inplace)
        note("dropout masks")
        return input * _mask(torch, input, p)

    return dropout


def _mask(torch: Any, like: Any, p: float) -> Any:
    dropped = min(_STEPS - 1, max(1, round(p * _STEPS)))
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(SMALLEST_WORD, None)
    bits = words.view(torch.int16)[: like.numel()].view(like.shape)
    kept = bits >= dropped - _STEPS // 2
    return kept.to(like.dtype).mul_(_STEPS / (_STEPS - dropped))


SHORT_MASKS = Fix(
    name="short-masks",
    change="bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-2**63, None); "
    "x = x * (bits.view(torch.int16)[:x.numel()].view(x.shape) >= int(p * 65536) - 32768)"
    ".to(x.dtype).mul_(1 / (1 - p))  # instead of dropout(x, p)",
    apply=short_masks,
    devices=("cpu",),
)
