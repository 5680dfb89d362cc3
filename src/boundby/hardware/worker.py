"""Measures in a separate process, so that the measurement has no effect on the caller's process.

Probes compile code, fill caches, hold device memory and start a profiler. The parent sends the
place, then the task, and reads one JSON message per line: the device, then progress, then the
machine (or the requested operator times) or an error. The process imports torch and starts the
device before the task arrives.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import msgspec

from boundby.hardware import jax_machine
from boundby.hardware.device import Device, identify
from boundby.hardware.load import LoadMeter
from boundby.hardware.measure import measure
from boundby.hardware.op_benchmark import OpBenchmark, time_operators
from boundby.model import Machine
from boundby.model.assumptions.host import CPU_WAIT_LIMIT
from boundby.model.errors import CANNOT_MEASURE, BoundbyError


class Place(msgspec.Struct):
    """The device of a measurement and its number of threads."""

    device: str | None = None
    threads: int | None = None


class Task(msgspec.Struct):
    """The machine, or, if given, these operators instead."""

    quick: bool = False
    exercises: tuple[OpBenchmark, ...] = ()


class Identified(msgspec.Struct, tag=True):
    device: Device


class Advanced(msgspec.Struct, tag=True):
    what: str
    part: float


class Measured(msgspec.Struct, tag=True):
    machine: Machine


class Timed(msgspec.Struct, tag=True):
    ns: tuple[float | None, ...]


class Failed(msgspec.Struct, tag=True):
    message: str
    exit_code: int


Message = Identified | Advanced | Measured | Timed | Failed


class Worker:
    """The process, until it is closed."""

    def __init__(self, place: Place) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._send(place)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def messages(self, task: Task) -> Iterator[Message]:
        """Its messages, until the result."""
        self._send(task)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield msgspec.json.decode(line, type=Message)
        if self._process.wait() != 0:
            raise BoundbyError(self._error_reason(), exit_code=CANNOT_MEASURE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, message: Place | Task) -> None:
        """A process that has ended reports why when it is read."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()

    def _error_reason(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {self._process.returncode}"
        return f"the measuring process failed: {reason}"


def main() -> None:
    # Output of libraries must not be read as a message.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(message: Message) -> None:
        channel.write(msgspec.json.encode(message) + b"\n")
        channel.flush()

    def advance(what: str, part: float) -> None:
        say(Advanced(what, part))

    try:
        device = _prepare(msgspec.json.decode(sys.stdin.buffer.readline(), type=Place))
        say(Identified(device))
        line = sys.stdin.buffer.readline()
        if not line:
            return
        task = msgspec.json.decode(line, type=Task)
        if jax_machine.is_needed():
            unknown = Timed((None,) * len(task.exercises))
            say(unknown if task.exercises else _through_jax(device, advance))
        elif task.exercises:
            times = time_operators(
                task.exercises, kind=device.kind, index=device.index, progress=advance
            )
            say(Timed(tuple(times)))
        else:
            say(Measured(_measured(device, quick=task.quick, progress=advance)))
    except BoundbyError as error:
        say(Failed(str(error), error.exit_code))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)


def _measured(device: Device, *, quick: bool, progress: Callable[[str, float], None]) -> Machine:
    """The roofs, with the load of the machine during the measurement."""
    meter = LoadMeter()
    machine = measure(device, quick=quick, progress=progress)
    share = meter.wait_share()
    is_busy = share is not None and share > CPU_WAIT_LIMIT.value
    warnings = list(machine.warnings)
    if is_busy:
        warnings.append(
            f"the machine was busy: its measurement waited for a core for {share:.0%} of the time, "
            "so roofs may be too low; they are not kept"
        )
    return msgspec.structs.replace(machine, wait_share=share, under_load=is_busy, warnings=warnings)


def _through_jax(device: Device, advance: Callable[[str, float], None]) -> Measured:
    return Measured(jax_machine.measure(device, progress=advance))


def _prepare(place: Place) -> Device:
    """Send the device's name, and start it."""
    if jax_machine.is_needed():
        return jax_machine.identify(place.device)
    if place.threads is not None:
        import torch

        torch.set_num_threads(place.threads)
    device = identify(place.device)
    if device.kind == "cuda":
        import torch

        torch.cuda.set_device(device.index)
        torch.cuda.synchronize()
    return device


if __name__ == "__main__":
    main()
