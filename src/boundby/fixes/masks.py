"""Attention masks that models of transformers build only because they are traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from boundby.fixes.attributes import PatchSet

# What a user would write.
CHANGE = "transformers.masking_utils.is_tracing = lambda padding=None: padding is not None"


def leave_out_needless_masks() -> PatchSet:
    """Where nothing is padded, transformers leaves the mask to the kernel, unless it is traced.

    Compiled or captured it would build one all the same, which keeps attention off its fastest
    kernels, and, for attention in plain operators, copies a number to the device, which cannot be
    captured. Without padding nothing about the mask depends on data, so that tracing is no reason.
    Empty where there is no such library.
    """
    swaps = PatchSet()
    masking = sys.modules.get("transformers.masking_utils")
    if hasattr(masking, "is_tracing"):
        swaps.swap(masking, "is_tracing", _only_of_padding)
    return swaps


def _only_of_padding(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_tracing(padding: Any = None) -> bool:
        return padding is not None and original(padding)

    return is_tracing
