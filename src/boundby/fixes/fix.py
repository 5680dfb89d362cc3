"""A way to mend a fault from outside, in a script nobody touches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fix:
    """How a program is changed, and what a user would write to get the same.

    `apply` is entered in the script's process before the script starts, and before torch is
    imported; `environment` is set before that process starts. `precision` names the dtype in which
    it now computes what had more digits before: None promises the same arithmetic, up to its order.
    `devices`: where there is a point in trying. `preparation_s`: about how long the program takes
    longer to start; `again_s`: and once more, where what was prepared is forgotten because the
    program has changed, as it does when dropout is switched on. Of treatments in one `slot` only
    one can be applied. `covers`: the faults that are gone with it, where that is more, or other,
    than the one it is tried for. `written`: the change in the script's own terms, from what was
    touched in it.
    """

    name: str
    change: str  # what a user would write in the script
    apply: Callable[[], AbstractContextManager[None]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    preparation_s: float = 0.0
    again_s: float = 0.0
    slot: str = ""
    covers: tuple[str, ...] = ()
    written: Callable[[Collection[str]], str] | None = None
