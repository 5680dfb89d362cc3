"""Planted remedies: one computes something else, one hangs, one is slower, one does nothing.

Loaded in trials with `--plugin tests.prove.planted`.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from boundby import faults as remedies
from boundby.capture.process.step_hooks import StepHook, accompanied_by
from boundby.faults import HEADINGS, Detection, Fault, Fix
from boundby.fixes.log import note
from boundby.fixes.root_modules import outermost_modules
from boundby.step.model import Edit, StepModel


def detect(step_model: StepModel) -> Detection | None:
    half = Edit.set_time({at: record.ns / 2 for at, record in enumerate(step_model.op_records)})
    return Detection(low=half, expected=half, high=half, where=[], change="none", assumes="")


def slightly_wrong() -> contextlib.AbstractContextManager[None]:
    """Outputs larger by a thousandth."""

    def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        note("outputs scaled")
        return module.register_forward_hook(lambda *seen: seen[2] * 1.001).remove

    return outermost_modules(change)


class Sleeps(StepHook):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        note("asleep")
        time.sleep(self.seconds)


def slower() -> contextlib.AbstractContextManager[None]:
    return accompanied_by(Sleeps(0.01))


def hanging() -> contextlib.AbstractContextManager[None]:
    return accompanied_by(Sleeps(3600))


@contextlib.contextmanager
def nothing() -> Iterator[None]:
    note("nothing at all")
    yield


@contextlib.contextmanager
def crashing() -> Iterator[None]:
    def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise MemoryError("planted: out of memory\nand a second line")

    with outermost_modules(change):
        yield


PLANTED = {
    "wrong": slightly_wrong,
    "slower": slower,
    "hanging": hanging,
    "nothing": nothing,
    "crashing": crashing,
}

for name, apply in PLANTED.items():
    remedies.register(
        Fault(
            id=f"planted-{name}",
            title=f"Planted: {name}",
            group="overhead",
            document="A planted fault.\n\n" + "\n".join(HEADINGS),
            detect=detect,
            fixes=(Fix(name=name, change=f"# {name}", apply=apply),),
        )
    )
