"""oneDNN, a CPU's fast kernels: torch switches it off for good at a product that it cannot do.

One of bfloat16, on a CPU without an instruction for it, is enough: whatever is timed in the same
process afterwards would be timed without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """Switched on or off afterwards as it was before."""
    import torch

    switch = torch.backends.mkldnn
    before = getattr(switch, "enabled", None)
    try:
        yield
    finally:
        if before is not None and switch.enabled != before:
            switch.enabled = before
