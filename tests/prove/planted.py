"""Planted fixes that fail: loaded with `--plugin tests.prove.planted`."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from boundby import faults
from boundby.faults import HEADINGS, Fault, Fix
from boundby.fixes.log import note
from boundby.runtime.step_hooks import StepHook, step_hook_active


class Breaks(StepHook):
    def call_ends(self, called: Any, result: Any) -> None:
        def fail(gradient: Any) -> None:
            raise MemoryError("planted: no memory in backward\nand more")

        note("backward broken")
        result.register_hook(fail)


@contextlib.contextmanager
def broken_backward() -> Iterator[None]:
    with step_hook_active(Breaks()):
        yield


@contextlib.contextmanager
def refused_by_second_rank() -> Iterator[None]:
    if os.environ.get("RANK") == "1":
        raise RuntimeError("planted: not on this rank")
    yield


class Sleeps(StepHook):
    def optimizer_begins(self, optimizer: Any) -> None:
        if os.environ.get("RANK") == "1":
            note("slept")
            time.sleep(0.2)


@contextlib.contextmanager
def sleeps_on_second_rank() -> Iterator[None]:
    with step_hook_active(Sleeps()):
        yield


faults.register(
    Fault(
        id="planted",
        title="Planted",
        group="overhead",
        document="A planted fault.\n\n" + "\n".join(HEADINGS),
        detect=lambda step: None,
        fixes=(
            Fix(name="broken-backward", change="# broken", apply=broken_backward),
            Fix(name="refused-by-one", change="# refused", apply=refused_by_second_rank),
            Fix(name="sleeps-on-one", change="# sleeps", apply=sleeps_on_second_rank),
        ),
    )
)
