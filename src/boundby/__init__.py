"""boundby: what a deep-learning step is bound by, why, and what would fix it.

The public names are loaded when they are first used: importing boundby costs nothing.
"""

from __future__ import annotations

import importlib
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boundby import faults as faults
    from boundby.capture.process.script import mark_step as step
    from boundby.model import Cost as Cost
    from boundby.model import Machine as Machine
    from boundby.ops import formula as formula
    from boundby.plan.requests import plan as plan
    from boundby.prove.functions import prove as prove
    from boundby.session.live import diagnose as diagnose
    from boundby.session.live import machine as machine
    from boundby.session.live import watch as watch
    from boundby.session.traces import load as load

__version__ = "0.1.0"

# Public name -> where it lives: a name in a module, or a module.
_PUBLIC = {
    "Cost": "boundby.model:Cost",
    "Machine": "boundby.model:Machine",
    "diagnose": "boundby.session.live:diagnose",
    "faults": "boundby.faults",
    "formula": "boundby.ops:formula",
    "load": "boundby.session.traces:load",
    "machine": "boundby.session.live:machine",
    "plan": "boundby.plan.requests:plan",
    "prove": "boundby.prove.functions:prove",
    "step": "boundby.capture.process.script:mark_step",
    "watch": "boundby.session.live:watch",
}
# These measure, or give out a Diagnosis: the report shows how far they are, and what came of it.
_SHOWN = {"diagnose", "load", "machine", "prove", "watch"}

__all__ = [
    "Cost",
    "Machine",
    "__version__",
    "diagnose",
    "faults",
    "formula",
    "load",
    "machine",
    "plan",
    "prove",
    "step",
    "watch",
]


class CallablePackage(types.ModuleType):
    """A package that shares its name with a public function: `boundby.prove(...)` calls that.

    Once the package is imported, the import system binds the name to it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _load(self.__name__.rpartition(".")[2])(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'boundby' has no attribute {name!r}")
    value = _load(name)
    globals()[name] = value
    return value


def _load(name: str) -> Any:
    from boundby.capture.host.random_state import random_state_kept

    module, _, attribute = _PUBLIC[name].partition(":")
    # rich draws a random number when it is imported.
    with random_state_kept():
        if name in _SHOWN:
            importlib.import_module("boundby.report.display")
        value: Any = importlib.import_module(module)
    if attribute:
        value = getattr(value, attribute)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
