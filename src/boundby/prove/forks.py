"""Trials as forks of a prepared process, for those who want them run: see `nursery`.

Only where that is known to be the same as a fresh start; `refusal` says why it is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from boundby.capture.process.execution import Target
from boundby.prove.import_environment import DRIVERLESS

# Preparing is importing: what takes this many times as long as it took the script hangs.
_LONGEST_S = 300.0
_MOST_STARTS = 3


class NurseryDiedError(Exception):
    """The prepared process is gone, and nobody asked it to go."""


class Forks:
    """A prepared process, begun with the first fork that is wanted and kept until the end."""

    def __init__(
        self, *, target: Target, imports: Path, folder: Path, environment: Mapping[str, str]
    ) -> None:
        """`imports`: what a fresh run of the script has noted; `folder`: for what passes by."""
        self.refusal = None if _can_fork() else "forking is only known to be safe on Linux"
        self.seconds = 0.0  # that preparing took
        self.imported = 0
        self.stopped: str | None = None  # why it did not import more
        self._target = target
        self._imports = imports
        self._folder = folder
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._unread = b""

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def prepare(self, cwd: Path) -> bool:
        """Whether there is a process to fork from; one that breaks a rule is made with less."""
        if self._process is not None or self.refusal is not None:
            return self._process is not None
        if not self._imports.exists():
            self.refusal = "it is not known what the script imports"
            return False
        began = time.monotonic()
        most: int | None = None
        for _ in range(_MOST_STARTS):
            told = self._start(cwd, most)
            if told["refused"] is None:
                self.imported, self.refusal = told["imported"], None
                self.stopped = self.stopped or told["stopped"]
                break
            self.close()
            self.refusal = str(told["refused"])
            self.stopped = self.stopped or self.refusal
            if not told["imported"]:
                break
            most = told["imported"]
        else:
            self.close()
        self.seconds += time.monotonic() - began
        return self._process is not None

    def run(self, spec: Path, log: Path, *, limit_s: float, cwd: Path) -> int | None:
        """The exit code of one fork, a signal as a negative one; None if it ran past its limit."""
        self._tell({"spec": str(spec), "log": str(log), "cwd": str(cwd)})
        child = int(self._heard(_LONGEST_S)["process"])
        try:
            code: int | None = int(self._heard(limit_s)["code"])
        except TimeoutError:
            code = None
        except BaseException:
            _end_group(child)
            raise
        # With all that it has started, whether it has ended itself or not.
        _end_group(child)
        if code is None:
            self._heard(_LONGEST_S)
        return code

    def close(self) -> None:
        process, self._process = self._process, None
        if self._line is not None:
            self._line.close()
            self._line = None
        if process is not None:
            _end_group(process.pid)
            process.wait()

    def _start(self, cwd: Path, most: int | None) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        order = self._folder / "nursery.json"
        content = {
            "socket": theirs.fileno(),
            "argv": [self._target.name, *self._target.args],
            "imports": str(self._imports),
            "most": most,
            "driverless": self._environment.get(DRIVERLESS),
        }
        order.write_text(json.dumps(content))
        with theirs, (self._folder / "nursery.log").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "boundby.prove.fork_server", str(order)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=self._environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._line, self._unread = ours, b""
        try:
            return self._heard(_LONGEST_S)
        except TimeoutError:
            return {"refused": "importing does not come to an end", "imported": 0}
        except NurseryDiedError:
            return {"refused": "the process died while it imported", "imported": 0}

    def _tell(self, order: Mapping[str, str]) -> None:
        assert self._line is not None
        try:
            self._line.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            raise NurseryDiedError from None

    def _heard(self, limit_s: float) -> dict[str, Any]:
        """The next line that it says; TimeoutError if there is none in time."""
        assert self._line is not None
        ends = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            self._line.settimeout(max(0.001, ends - time.monotonic()))
            try:
                more = self._line.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                raise NurseryDiedError
            self._unread += more
        text, _, self._unread = self._unread.partition(b"\n")
        heard: dict[str, Any] = json.loads(text)
        return heard


def _can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def _end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
