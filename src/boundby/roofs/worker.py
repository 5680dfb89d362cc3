"""Measures in a process of its own, so that nothing of it stays behind in anybody else's.

Probes compile code, fill caches, hold device memory and start a profiler. The parent sends one
request and reads one JSON message per line: the device, then progress, then the machine (or the
times of the operators it asked for) or an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from boundby.errors import CANNOT_MEASURE, BoundbyError
from boundby.model import Machine
from boundby.roofs.device import Device, identify
from boundby.roofs.measure import measure
from boundby.roofs.operators import Exercise, time_operators


class Request(msgspec.Struct):
    device: str | None = None
    quick: bool = False
    threads: int | None = None
    exercises: tuple[Exercise, ...] = ()  # time these instead of measuring the machine


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


def messages(request: Request) -> Iterator[Message]:
    """Run a worker and yield what it says; closing the iterator ends the worker."""
    command = [sys.executable, "-P", "-m", __name__]
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as log:
        asked.write(msgspec.json.encode(request))
        asked.seek(0)
        process = subprocess.Popen(command, stdin=asked, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield msgspec.json.decode(line, type=Message)
            if process.wait() != 0:
                log.seek(0)
                raise BoundbyError(_last_words(log, process.returncode), exit_code=CANNOT_MEASURE)
        finally:
            process.kill()
            process.wait()


def _last_words(log: IO[bytes], code: int) -> str:
    lines = log.read().decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"exit code {code}"
    return f"the measuring process failed: {reason}"


def main() -> None:
    # What the probes' libraries print must not be taken for a message.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(message: Message) -> None:
        channel.write(msgspec.json.encode(message) + b"\n")
        channel.flush()

    def advance(what: str, part: float) -> None:
        say(Advanced(what, part))

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    try:
        device = _prepare(request)
        say(Identified(device))
        if request.exercises:
            times = time_operators(
                request.exercises, kind=device.kind, index=device.index, progress=advance
            )
            say(Timed(tuple(times)))
        else:
            say(Measured(measure(device, quick=request.quick, progress=advance)))
    except BoundbyError as error:
        say(Failed(str(error), error.exit_code))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)


def _prepare(request: Request) -> Device:
    if request.threads is not None:
        import torch

        torch.set_num_threads(request.threads)
    device = identify(request.device)
    if device.kind == "cuda":
        import torch

        torch.cuda.set_device(device.index)
    return device


if __name__ == "__main__":
    main()
