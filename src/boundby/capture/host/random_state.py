"""Restores the random states of a program after boundby's own work in its process.

Measuring roofs draws random tensors, and importing a library may draw from Python's generator.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Keep the states of Python's, numpy's and torch's global generators, as far as loaded."""
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    try:
        if torch is None:
            yield
        else:
            uses_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
            devices = range(torch.cuda.device_count()) if uses_cuda else ()
            with torch.random.fork_rng(devices):
                yield
    finally:
        random.setstate(python_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)
