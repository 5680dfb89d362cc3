"""A process that has imported what a script imports; each trial is a fork of it.

    python -m boundby.prove.fork_server ORDER.json

Imports take most of a trial's time, and are the same each time. They are done here in the script's
order, as long as the process is in the state in which the script was: what a script sets before it
imports a package is what that package gets to see. Nothing is run, no device is touched and no
thread may be left over, else a fork would not be what a fresh process is. Then, for each line on
the socket, a fork that goes on as `boundby.prove.worker` does.

What remains different: strings hash alike in all forks, and what an import sets in the environment
is set from the beginning.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from boundby.capture.process import patching as swaps
from boundby.prove.gpu_clocks import closed_after_counting
from boundby.prove.import_environment import (
    DRIVERLESS,
    Beginning,
    beginning,
    difference,
    surroundings,
)
from boundby.prove.imports import module_files
from boundby.prove.worker import Trial

_DRIVER = "/dev/nvidia"
_FINE, _POISONED = 0, 1


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    line = socket.socket(fileno=order["socket"])
    line.set_inheritable(False)
    sys.argv = list(order["argv"])
    first = [] if sys.flags.safe_path else sys.path[:1]
    del sys.path[: len(first)]
    # Whoever asks for devices while it is imported is answered without waking the driver.
    os.environ[DRIVERLESS] = "1"
    with closed_after_counting():
        told = _prepare(order["imports"], order["most"], beginning())
    if order["driverless"] is None:
        del os.environ[DRIVERLESS]
    else:
        os.environ[DRIVERLESS] = order["driverless"]
    line.sendall(json.dumps(told).encode() + b"\n")
    if told["refused"] is not None:
        return
    trial = _serve(line)
    # From here on this is a trial: what it raises, prints and returns is its own.
    sys.path[:0] = first
    importlib.invalidate_caches()
    _draw_anew()
    Trial(json.loads(Path(trial["spec"]).read_text())).run()


def _prepare(path: str, most: int | None, began: Beginning) -> dict[str, Any]:
    """Import as far as all is as it was in the script; `most`: no more than so many."""
    noted = json.loads(Path(path).read_text())
    around: dict[str, str] = {}
    told: dict[str, Any] = {"refused": None, "imported": 0, "stopped": None}
    before_torch: set[str] | None = None
    for number, one in enumerate(noted["noted"][:most]):
        around = one["surroundings"] or around
        changed = difference(around, surroundings(began))
        if changed is not None:
            told["stopped"] = f"the script sets {changed} before it imports {one['name']}"
            break
        try:
            importlib.import_module(one["name"])
        except Exception as error:  # noqa: BLE001 - a package may fail to load in any way
            told["stopped"] = f"{one['name']} cannot be imported by itself: {error}"
            break
        if before_torch is None and "torch" in sys.modules:
            before_torch = set(sys.modules)
        trouble = _trouble()
        if trouble is not None:
            told["refused"] = f"importing {one['name']} {trouble}"
            return told
        told["imported"] = number + 1
    if before_torch is None:
        told["refused"] = told["stopped"] or "the script imports no torch of an installed package"
        return told
    elsewhere = _elsewhere(noted["files"])
    if elsewhere is not None:
        told["refused"] = elsewhere
        return told
    swaps.tell_of_aliases(before_torch)
    return told


def _elsewhere(files: dict[str, str]) -> str | None:
    """A module that is not the one which the script found under its name, or did not have."""
    for name, file in module_files().items():
        if name.partition(".")[0] in sys.stdlib_module_names and name not in files:
            continue
        if files.get(name) != file:
            return f"{name} is not what the script imports by this name"
    return None


def _trouble() -> str | None:
    """Why a fork of this process would not be like a fresh one; None where it would."""
    if _starts_poisoned():
        return "starts CUDA"
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - only their number is of interest
    if threads > 1:
        return f"leaves {threads - 1} thread{'s' * (threads > 2)} running"
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists() and children.read_text().strip():
        return "leaves a process running"
    for handle in Path("/proc/self/fd").iterdir():
        try:
            opened = str(handle.readlink())
        except OSError:  # the one that this very listing has open
            continue
        if opened.startswith(_DRIVER):
            return f"opens {opened}"
    return None


def _starts_poisoned() -> bool:
    """Whether CUDA cannot be used in a fork; pools of threads that end at a fork are gone then."""
    torch = sys.modules.get("torch")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        bad = getattr(getattr(torch, "_C", None), "_cuda_isInBadFork", lambda: False)
        os._exit(_POISONED if bad() else _FINE)
    _, status = os.waitpid(child, 0)
    started = torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized()
    return started or os.waitstatus_to_exitcode(status) != _FINE


def _serve(line: socket.socket) -> dict[str, Any]:
    """Fork for each order. Returns in the forks alone; this process ends when nobody listens."""
    orders = line.makefile("r")
    for text in orders:
        order: dict[str, Any] = json.loads(text)
        sys.stdout.flush()
        sys.stderr.flush()
        ready, set_up = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ready)
            _become(order)
            orders.close()
            line.close()
            os.close(set_up)
            return order
        os.close(set_up)
        # Only once it leads a group of its own can it be ended with all it has started.
        os.read(ready, 1)
        os.close(ready)
        line.sendall(json.dumps({"process": child}).encode() + b"\n")
        code = _wait(child, line)
        with contextlib.suppress(BrokenPipeError):  # then nobody listens any more
            line.sendall(json.dumps({"code": code}).encode() + b"\n")
    os._exit(0)


def _wait(child: int, line: socket.socket) -> int:
    """Until it ends; if those who wanted it are gone, it is ended."""
    handle = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([handle, line.fileno()], [], [])
        if handle not in ended:
            os.killpg(child, signal.SIGKILL)
    finally:
        os.close(handle)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _become(order: dict[str, Any]) -> None:
    """A session, an output and a folder of its own, as a process that is started has."""
    os.setsid()
    output = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(order["cwd"])


def _draw_anew() -> None:
    """What is seeded from the system when it is imported; `random` does this by itself."""
    drawing = sys.modules.get("numpy.random")
    if drawing is not None:
        drawing.seed()
    # The one of the CPU: those of devices begin with a number of their own, and not by now.
    sys.modules["torch"].default_generator.seed()


if __name__ == "__main__":
    main()
