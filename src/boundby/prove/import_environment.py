"""What importing a package may depend on, beyond the package: the state of the process.

Two imports of one package are alike only where all this is. Of the environment it is what was
changed since the process began that counts, and of values their digests: what is in them is
nobody's business.
"""

from __future__ import annotations

import hashlib
import locale
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

# Set where nothing may ask the driver, and asked about by nothing else.
DRIVERLESS = "PYTORCH_NVML_BASED_CUDA_CHECK"
_VARIABLE = "$"
Surroundings = dict[str, str]


class Beginning(NamedTuple):
    """What a process began with."""

    home: str
    environment: dict[str, str]


def beginning() -> Beginning:
    return Beginning(home=_working_directory(), environment=dict(os.environ))


def surroundings(began: Beginning) -> Surroundings:
    """The state of this process, by name."""
    found = {
        _VARIABLE + name: _digest(os.environ.get(name))
        for name in {*os.environ, *began.environment} - {DRIVERLESS}
        if os.environ.get(name) != began.environment.get(name)
    }
    root = logging.getLogger()
    found["the filters of warnings"] = repr(warnings.filters)
    found["the locale"] = locale.setlocale(locale.LC_ALL)
    handlers = [type(one).__qualname__ for one in root.handlers]
    found["logging"] = repr((root.level, handlers, root.manager.disable))
    found["the working directory"] = str(_working_directory() == began.home)
    contexts = sys.modules.get("multiprocessing.context")
    if contexts is not None:
        method = contexts._default_context.get_start_method(allow_none=True)
        found["the start method of processes"] = str(method)
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "get_default_dtype"):
        # Asking torch for the device would touch it.
        device = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
        kinds = (torch.get_default_dtype(), getattr(device, "device", None))
        found["torch's default dtype or device"] = repr(kinds)
    return found


def _digest(value: str | None) -> str:
    if value is None:
        return "removed"
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # a script may delete the one it is in
        return ""


def difference(wanted: Surroundings, found: Surroundings) -> str | None:
    """What of it differs, in words; what only one of them has looked at does not count."""
    for name in sorted({*wanted, *found}):
        both = name.startswith(_VARIABLE) or (name in wanted and name in found)
        if both and wanted.get(name) != found.get(name):
            return name
    return None
