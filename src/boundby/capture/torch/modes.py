"""Hides boundby's own work on tensors from the script's modes.

A `TorchFunctionMode` or `TorchDispatchMode` of the script (a counter, a default device) sees the
script's operators alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def outside_modes(torch: Any) -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
