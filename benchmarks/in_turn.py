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
from boundby.capture.process.import_hooks import when_imported
from boundby.capture.process.plan import Plan
from boundby.capture.process.script import run_script
from boundby.capture.process.step_hooks import StepHook, active_hooks
from boundby.model.host_speed import addition_ns
from boundby.prove.worker import treatment

# What is compiled or captured has settled by then.
WARMUP = 12
# Who waited finds cold caches and an empty queue: that is no step of its own.
_NOT_TIMED = 2


class Turned(StepHook):
    """The script's steps: counted, held up between turns, and timed in them."""

    def __init__(self, line: Connection, torch: Any) -> None:
        self._line, self._torch = line, torch
        self._seen = self._left = self._steps = 0
        self._began = self._pace = 0.0

    def step_ended(self) -> None:
        self._seen += 1
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
        except (EOFError, OSError):  # nobody is left to ask
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
    keys, script, *args = sys.argv[1:]
    line = Connection(int(os.environ.pop(LINE)))

    def arrived(torch: ModuleType) -> None:
        active_hooks.append(Turned(line, torch))

    with contextlib.ExitStack() as applied, tempfile.TemporaryDirectory() as folder:
        for key in filter(None, keys.split(",")):
            apply = treatment(key).apply
            if apply is not None:
                applied.enter_context(apply())
        when_imported("torch", arrived)
        ending = run_script(
            Target(name=script, args=args, is_module=False),
            # Warm-up without end: nothing but counting happens.
            plan=Plan(warmup=sys.maxsize),
            step_by="auto",
            folder=Path(folder),
            keep_going=True,
            on_refusal=lambda _: None,
            on_failure=lambda failure: sys.exit(failure.line),
        )
        line.send((False, _why(ending)))


def _why(ending: Ending) -> str:
    if ending.error is not None:
        return f"{type(ending.error).__name__}: {ending.error}".splitlines()[0]
    return "it has no steps left"


if __name__ == "__main__":
    main()
