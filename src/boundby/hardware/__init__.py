"""The machine's limits: measured roofs, datasheet figures, and the files they are saved in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from boundby.hardware import cache
from boundby.hardware.device import Device, identify
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import Machine
from boundby.model.errors import BoundbyError

__all__ = ["OperatorTimer", "await_saved", "identify", "obtain"]

Progress = Callable[[str, float], None]
Notice = Callable[[str], None]


_UNDER_LOAD = (
    "the machine was busy while its roofs were measured: they are not kept, and the next command "
    "measures them again"
)


def _silent(*_: object) -> None:
    return


def obtain(
    device: str | None = None,
    *,
    remeasure: bool = False,
    quick: bool = False,
    threads: int | None = None,
    identity: Device | None = None,
    progress: Progress = _silent,
    notice: Notice = _silent,
) -> Machine:
    """The roofs of a device: the saved ones, or measured now in a separate process and saved.

    `notice` gets one line if saved roofs exist and cannot be used. A caller that has already
    identified the device saves the process that would do so.
    """
    from boundby.hardware import worker

    if identity is not None and not remeasure:
        saved = _load(identity, notice)
        if saved is not None and (quick or not saved.quick):
            return saved
    place = worker.Place(device=device, threads=threads)
    with worker.Worker(place) as process:
        for message in process.messages(worker.Task(quick=quick)):
            match message:
                case worker.Identified(found):
                    saved = None if remeasure or identity else _load(found, notice)
                    if saved is not None and (quick or not saved.quick):
                        return saved
                    identity = found
                case worker.Advanced(what, part):
                    progress(what, part)
                case worker.Measured(machine):
                    assert identity is not None
                    if machine.under_load:
                        notice(_UNDER_LOAD)
                        cache.mark_busy(identity)
                    else:
                        cache.save(machine, identity)
                    return machine
                case worker.Failed(reason, exit_code):
                    raise BoundbyError(reason, exit_code=exit_code)
    raise BoundbyError("the measuring process ended without a result")


class OpBenchmarkRunner:
    """Benchmarks single operators on a device, in a process that starts at once.

    It takes seconds to get ready; the operators can be given later.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        threads: int | None = None,
        progress: Progress = _silent,
    ) -> None:
        from boundby.hardware import worker

        self._progress = progress
        self._worker = worker.Worker(worker.Place(device=device, threads=threads))

    def __enter__(self) -> OpBenchmarkRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def __call__(self, exercises: Sequence[OpBenchmark]) -> dict[OpBenchmark, float]:
        """The times in ns of the operators that ran; can be called once."""
        from boundby.hardware import worker

        for message in self._worker.messages(worker.Task(exercises=tuple(exercises))):
            match message:
                case worker.Advanced(what, part):
                    self._progress(what, part)
                case worker.Timed(times):
                    timed = zip(exercises, times, strict=True)
                    return {exercise: ns for exercise, ns in timed if ns is not None}
                case worker.Failed(reason, exit_code):
                    raise BoundbyError(reason, exit_code=exit_code)
                case _:
                    continue
        raise BoundbyError("the measuring process ended without a result")


def await_saved(device: Device, *, seconds: float) -> None:
    """Wait until roofs are saved for this device, for a limited time."""
    deadline = time.monotonic() + seconds
    while not cache.is_settled(device) and time.monotonic() < deadline:
        time.sleep(0.5)


def _load(device: Device, notice: Notice) -> Machine | None:
    try:
        machine = cache.load(device)
        return None if machine is not None and machine.under_load else machine
    except BoundbyError as error:
        notice(f"{error}: measuring again")
        return None
