"""A change to a running program, and what a user would write to get the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from boundby.fixes.switch import Entered, Program, Switch

# `step`: can be switched at a step boundary of the live program. `start`: needs a new process
# (environment, allocator, worker processes, what is read at import).
Scope = Literal["step", "start"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fix:
    """How a program is changed, and what a user would write for the same effect.

    `apply` is entered in the script's process: for scope `start` before the script starts, and
    before torch is imported; for scope `step` between two steps of the running program, unless
    `switch` is given, which makes a `Switch` for the live objects, or None if there is nothing to
    change. `environment` is set before the process starts. `precision` is the reduced dtype in
    which the program now computes; None means the same arithmetic, up to its order. `devices`: the
    device kinds on which it can help. `framework`: the framework of the programs it changes.
    `preparation_s`: the approximate duration of its first use. Of fixes in one `slot` only one can
    be applied. `covers`: the faults that it removes, if they are not just the one it is tried for.
    `written`: the change in the script's own terms, from what was changed in it. `always_tried`:
    `boundby prove` tries it without a finding too: it is switched within a step, and if it cannot
    help it is seen to change nothing. `needs_cores`: it starts processes, which need idle cores.
    `keeps_compiled`: code that the script has compiled stays valid.
    """

    name: str
    change: str  # what a user would write in the script
    apply: Callable[[], AbstractContextManager[None]] | None = None
    switch: Callable[[Program], Switch | None] | None = None
    scope: Scope = "step"
    environment: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    framework: str = "torch"
    preparation_s: float = 0.0
    slot: str = ""
    covers: tuple[str, ...] = ()
    written: Callable[[Collection[str]], str] | None = None
    always_tried: bool = False
    needs_cores: bool = False
    keeps_compiled: bool = False

    def __post_init__(self) -> None:
        if self.environment:
            object.__setattr__(self, "scope", "start")

    def switch_for(self, program: Program) -> Switch | None:
        """A switch for it on the live program; None if there is nothing to change."""
        if self.switch is not None:
            return self.switch(program)
        return Entered(self.apply) if self.apply is not None else None
