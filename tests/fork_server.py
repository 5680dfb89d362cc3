"""Runs Python commands in forks of a process that has imported torch: an import costs 2-4 s.

`run_python` takes the arguments of `python` and returns what became of the command. Each test
process starts one server, when it is first needed. What a command may see of its own start (which
modules are loaded, how long imports took) differs from a process of its own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).resolve().parents[1]
# What `boundby run` and an optimizer's first step import.
_LOADED = (
    *("torch", "torch._dynamo", "torch.profiler", "numpy", "rich.console", "rich.table"),
    *("boundby.cli.run", "boundby.session.live", "boundby.report.terminal"),
    *("boundby.capture.torch.recorder", "boundby.capture.process.script", "boundby.diagnosis"),
)
_POLL_S = 0.005
# For every process that a test waits for: longer than any of them takes on a busy machine.
HANG_S = 600.0


def run_python(
    arguments: list[str],
    *,
    cwd: Path,
    env: dict[str, str],
    stdin: str = "",
    timeout_s: float = HANG_S,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *arguments])` with text in and out.

    `arguments`: a script's path, -m and a module, or -c and code, with their own arguments.
    """
    with tempfile.TemporaryDirectory(prefix="fork-") as folder:
        files = [Path(folder) / name for name in ("in", "out", "err")]
        files[0].write_text(stdin)
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "env": env,
            "files": [str(file) for file in files],
            "timeout_s": timeout_s,
        }
        to_server, from_server = _server()
        to_server.write(json.dumps(request) + "\n")
        to_server.flush()
        code = json.loads(from_server.readline())
        out, err = (file.read_text() if file.exists() else "" for file in files[1:])
    if code is None:
        raise subprocess.TimeoutExpired(arguments, timeout_s, out, err)
    return subprocess.CompletedProcess(arguments, code, out, err)


@cache
def _server() -> tuple[IO[str], IO[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
    )
    assert process.stdin is not None and process.stdout is not None
    atexit.register(_end, process)
    return process.stdin, process.stdout


def _end(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


def _serve() -> dict[str, Any] | None:
    """Answer requests until there are no more; in a fork, return its request."""
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork's collections do not walk, and copy, what all forks share
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            os.close(requests.fileno())
            os.close(answers.fileno())
            return request
        answers.write(json.dumps(_exit_code(child, request["timeout_s"])) + "\n")
        answers.flush()
    return None


def _exit_code(child: int, timeout_s: float) -> int | None:
    """None where the time was up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become(request: dict[str, Any]) -> None:
    """Run the command in this process, which ends as the command does."""
    for number, file in enumerate(request["files"]):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open(file, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None
    first, *rest = request["arguments"]
    sys.path[0] = request["cwd"]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = str(Path(request["cwd"], first).parent)
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    request = _serve()
    if request is not None:
        _become(request)
