"""How torch allocates memory, on the device and on the host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from boundby.fixes.fix import Fix

_SETTING = "expandable_segments:True"
# A new name and an old one; torch does not check them in the same order everywhere.
_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_SET_ALREADY = re.compile(r"(^|,)\s*expandable_segments\s*:\s*\w+")


def growing_segments(environment: Mapping[str, str]) -> dict[str, str]:
    """The setting added to the user's; a name that is not set gets the other's value."""
    theirs = [environment.get(name, "") for name in _NAMES]
    return {
        name: _beside(own or other)
        for name, own, other in zip(_NAMES, theirs, reversed(theirs), strict=True)
    }


def _beside(settings: str) -> str:
    kept = _SET_ALREADY.sub("", settings).strip(", ")
    return f"{kept},{_SETTING}" if kept else _SETTING


_ENVIRONMENT = growing_segments(os.environ)

EXPANDABLE_SEGMENTS = Fix(
    name="expandable-segments",
    change=f"PYTORCH_CUDA_ALLOC_CONF={_ENVIRONMENT['PYTORCH_CUDA_ALLOC_CONF']} python SCRIPT",
    environment=_ENVIRONMENT,
    devices=("cuda",),
)

# One variable per allocator: mimalloc, which torch includes for ARM, and the C library's.
_KEPT = {
    "MIMALLOC_PURGE_DELAY": "-1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}
KEPT_MEMORY = Fix(
    name="kept-memory",
    change=f"{' '.join(f'{name}={value}' for name, value in _KEPT.items())} python SCRIPT",
    environment=_KEPT,
    devices=("cpu",),
)
