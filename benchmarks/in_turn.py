"""A script, untouched, that takes its steps in turns: with fixes applied from outside, or without.

    python benchmarks/in_turn.py KEY,KEY SCRIPT ARGS...    # started by a `turns.Player`

Its steps are found as `boundby prove` finds them. After each it may be told to wait, and while it
waits another one works; see `turns.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from turns import FEWEST_STEPS, LINE, MOST_STEPS, TURN_S

from boundby.capture.process.execution import Ending, Target
from boundby.capture.process.plan import Plan
from boundby.capture.process.script import run_script
from boundby.fixes.switch import Program
from boundby.model.host_speed import addition_ns
from boundby.prove.switchboard import Switchboard
from boundby.prove.worker import fix_of
from boundby.runtime.import_hooks import when_imported
from boundby.runtime.step_hooks import StepHook, active_hooks

# What is compiled or captured has settled by then.
WARMUP = 12
# After waiting, caches are cold and the queue is empty: the first step is not timed.
_NOT_TIMED = 2


class Turned(StepHook):
    """The script's steps: counted, held up between turns, and timed in them."""

    def __init__(self, line: Connection, torch: Any, keys: list[str]) -> None:
        self._line, self._torch, self._keys = line, torch, keys
        self._program = Program(torch=torch)
        self._seen = self._left = self._steps = 0
        self._began = self._pace = 0.0

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        models = self._program.models
        if self._seen < 1 and hasattr(called, "parameters") and called not in models:
            models.append(called)

    def optimizer_begins(self, optimizer: Any) -> None:
        if self._seen < 1 and optimizer not in self._program.optimizers:
            self._program.optimizers.append(optimizer)

    def step_ended(self, kind: str) -> None:
        self._seen += 1
        if self._seen == 1:
            fixes = {key: fix_of(key) for key in self._keys}
            step_fixes = tuple(key for key, fix in fixes.items() if fix.scope == "step")
            Switchboard(self._program, fixes).set(step_fixes)
        if self._seen == WARMUP - FEWEST_STEPS:
            self._start()
        elif self._seen == WARMUP:
            step = self._elapsed() / FEWEST_STEPS
            self._steps = min(MOST_STEPS, max(FEWEST_STEPS, math.ceil(TURN_S / step)))
            self._line.send((True, None))
            self._wait_for_turn()
        elif self._seen > WARMUP:
            self._left -= 1
            if self._left == self._steps:
                self._start()
            elif not self._left:
                step_ns = self._elapsed() * 1e9 / self._steps
                self._line.send((True, (step_ns, (self._pace + addition_ns()) / 2)))
                self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        try:
            self._line.recv()
        except (EOFError, OSError):  # the controlling process has ended
            os._exit(0)
        self._pace = addition_ns()
        self._left = self._steps + _NOT_TIMED

    def _start(self) -> None:
        self._synchronize()
        self._began = time.perf_counter()

    def _elapsed(self) -> float:
        self._synchronize()
        return time.perf_counter() - self._began

    def _synchronize(self) -> None:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()


def main() -> None:
    named, script, *args = sys.argv[1:]
    keys = list(filter(None, named.split(",")))
    line = Connection(int(os.environ.pop(LINE)))

    def arrived(torch: ModuleType) -> None:
        active_hooks.append(Turned(line, torch, keys))

    with contextlib.ExitStack() as applied, tempfile.TemporaryDirectory() as folder:
        for fix in map(fix_of, keys):
            if fix.scope == "start" and fix.apply is not None:
                applied.enter_context(fix.apply())
        when_imported("torch", arrived)
        ending = run_script(
            Target(name=script, args=args, is_module=False),
            # Warm-up without end: nothing but counting happens.
            plan=Plan(warmup=sys.maxsize),
            step_by="auto",
            folder=Path(folder),
            keep_going=True,
            on_refusal=lambda *_: None,
            on_failure=lambda failure: sys.exit(failure.line),
        )
        line.send((False, _why(ending)))


def _why(ending: Ending) -> str:
    if ending.error is not None:
        return f"{type(ending.error).__name__}: {ending.error}".splitlines()[0]
    return "it has no steps left"


if __name__ == "__main__":
    main()
