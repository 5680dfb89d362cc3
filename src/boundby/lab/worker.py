"""Runs experiments in a separate process, with one message per line to the parent.

Experiments compile code, fill memory and start a profiler; a separate process keeps these effects
out of the parent. An experiment that fails or ends its process is reported, and a new process
continues with the remaining ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from boundby.hardware.device import identify
from boundby.lab import EXPERIMENTS
from boundby.lab.bench import Bench
from boundby.lab.conduct import conduct, failed
from boundby.lab.experiment import Experiment
from boundby.model import Machine
from boundby.model.errors import BoundbyError
from boundby.model.lab import Prediction, Result

# The process keeps pages that were used once: on a CPU, fresh ones for every result would cost more
# than the operator that fills them. A GPU's caching allocator does the same.
_KEEP_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
# On a CPU every compiled function is one C++ file: a pool of compilers would only cost time.
_ONE_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


class Request(msgspec.Struct):
    machine: Machine
    device: str
    names: list[str]
    quick: bool = False


class Began(msgspec.Struct, tag=True):
    name: str


class Predicted(msgspec.Struct, tag=True):
    name: str
    predicted: dict[str, Prediction]


class Advanced(msgspec.Struct, tag=True):
    """Reports progress of the measurement."""

    name: str


class Finished(msgspec.Struct, tag=True):
    result: Result


Message = Began | Predicted | Advanced | Finished


def messages(request: Request) -> Iterator[Message]:
    """All messages of the workers, until no experiment is left; closing it ends the worker."""
    left = list(request.names)
    while left:
        current = None
        reason = None
        try:
            for message in _worker(msgspec.structs.replace(request, names=left)):
                if isinstance(message, Began):
                    current = message.name
                if isinstance(message, Finished):
                    left.remove(message.result.name)
                    current = None
                yield message
        except BoundbyError as error:
            reason = str(error)
        if current is None and reason is None:
            continue
        if current is None:
            # It ended before the first experiment: another worker would too.
            for name in left:
                yield Finished(failed(find(name), reason or ""))
            return
        yield Finished(failed(find(current), reason or "its process ended without a result"))
        left.remove(current)


def _worker(request: Request) -> Iterator[Message]:
    command = [sys.executable, "-P", "-m", __name__]
    environment = os.environ | (_KEEP_PAGES | _ONE_COMPILER if request.device == "cpu" else {})
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        )
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(msgspec.json.encode(request))
            process.stdin.close()
            for line in process.stdout:
                yield msgspec.json.decode(line, type=Message)
            if process.wait() != 0:
                raise BoundbyError(_error_reason(log, process.returncode))
        finally:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _error_reason(log: IO[bytes], code: int) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return f"its process failed: {lines[-1] if lines else f'exit code {code}'}"


def find(name: str) -> Experiment:
    found = next((one for one in EXPERIMENTS if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in EXPERIMENTS)
        raise BoundbyError(f"no such experiment: {name} (known: {known})")
    return found


def main() -> None:
    channel = os.fdopen(os.dup(1), "wb")
    # Output of compilers and libraries must not be taken for a message.
    os.dup2(2, 1)

    def say(message: Message) -> None:
        channel.write(msgspec.json.encode(message) + b"\n")
        channel.flush()

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    bench = _prepare(request)
    for name in request.names:
        say(Began(name))
        bench.tick = lambda name=name: say(Advanced(name))  # type: ignore[misc]
        experiment = find(name)
        try:
            result = conduct(experiment, bench, lambda law, name=name: say(Predicted(name, law)))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - one experiment's failure is not the others'
            say(Finished(failed(experiment, _in_a_line(error))))
            if bench.cuda:
                # A CUDA error affects its process only: the other experiments continue in a new
                # one.
                return
        else:
            say(Finished(result))
        _tidy(bench)


def _prepare(request: Request) -> Bench:
    import torch

    if request.machine.threads:
        torch.set_num_threads(request.machine.threads)
    torch.manual_seed(0)
    device = identify(request.device)
    if device.kind == "cuda":
        torch.cuda.set_device(device.index)
    return Bench(machine=request.machine, device=device, quick=request.quick)


def _tidy(bench: Bench) -> None:
    """Free what the next experiment must not find: memory, compiled code."""
    import gc

    import torch

    gc.collect()
    if bench.cuda:
        torch.cuda.empty_cache()


def _in_a_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = lines[0] if lines else ""
    return words if isinstance(error, BoundbyError) else f"{type(error).__name__}: {words}"


if __name__ == "__main__":
    main()
