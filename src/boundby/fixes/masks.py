"""Attention masks that models of transformers create only because they are traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from boundby.fixes.attributes import PatchSet

# What a user would write.
CHANGE = "transformers.masking_utils.is_tracing = lambda padding=None: padding is not None"


def skip_unneeded_masks() -> PatchSet:
    """Let transformers leave the mask to the kernel also while it is traced, if nothing is padded.

    In a compiled or captured call it creates one, which prevents the fastest attention kernels and,
    for attention in plain operators, copies a number to the device, which cannot be captured.
    Without padding, the mask does not depend on data, so tracing is no reason to create it. No
    effect if the library is not installed.
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
