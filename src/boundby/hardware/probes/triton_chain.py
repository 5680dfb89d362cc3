"""A chain of multiply-adds in registers, for CUDA. Imported only where triton is installed."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_BLOCK = 1024  # elements a program
_WARPS = 4  # a program


@triton.jit
def _chain(  # type: ignore[no-untyped-def]
    source,
    out,
    rounds,
    BLOCK: tl.constexpr,  # noqa: N803
    UNROLLED: tl.constexpr,  # noqa: N803
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + offsets)
    for _ in range(rounds):
        for _ in tl.static_range(UNROLLED):
            x = x * 0.4999 + 0.5
    tl.store(out + offsets, x)


def launch(numbers: Any, out: Any, *, rounds: int, unrolled: int) -> None:
    """Run `rounds * unrolled` multiply-adds on every number."""
    grid = (numbers.numel() // _BLOCK,)
    _chain[grid](numbers, out, rounds, BLOCK=_BLOCK, UNROLLED=unrolled, num_warps=_WARPS)
