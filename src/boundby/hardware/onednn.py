"""oneDNN, a CPU's fast kernels: torch disables it permanently after a product that it cannot do.

One in bfloat16, on a CPU without an instruction for it, is enough: everything benchmarked in the
same process afterwards would run without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def setting_restored() -> Iterator[None]:
    """Restore the setting afterwards."""
    import torch

    switch = torch.backends.mkldnn
    before = getattr(switch, "enabled", None)
    try:
        yield
    finally:
        if before is not None and switch.enabled != before:
            switch.enabled = before
