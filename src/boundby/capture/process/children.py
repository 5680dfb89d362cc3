"""Processes that a script starts, because its steps may be in one of them.

`torch.multiprocessing.spawn` and `multiprocessing.Process` pass a function to a new process: it is
wrapped in a `Watched`, which watches there as the script is watched here. A command run with
`subprocess` is another script, and only its name is kept.

Nothing is done for a script that has taken steps itself: its workers must not be disturbed.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.guard import Guard

# Modules whose processes are workers: loading data, compiling, pools.
_CHORES = ("torch.", "multiprocessing.", "concurrent.")
_SPAWN = "torch.multiprocessing.spawn"
_MOST_COMMANDS = 3

# Runs a function under watch in this process; `rank` is its number if it was spawned as one.
Attend = Callable[["Watched", tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A function to run under watch in a new process. Pickled on its way there."""

    function: Callable[..., Any]
    attend: Attend

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.attend(self, args, kwargs)

    @property
    def is_spawned_rank(self) -> bool:
        """Whether nothing waits for its result: then it may be ended when enough was measured."""
        return getattr(self.function, "__module__", None) == _SPAWN

    def number(self, args: tuple[Any, ...]) -> int | None:
        """The number of this spawned rank; the function gets it as its first argument."""
        return args[1] if self.is_spawned_rank and len(args) > 1 else None


@skipped_by_warnings
class Children:
    """Watches the processes that a script starts, until `let_go`."""

    def __init__(
        self, attend: Attend | None, is_needed: Callable[[], bool], guard: Guard | None = None
    ) -> None:
        self.commands: list[str] = []
        self._do = (guard or Guard()).do
        self._attend = attend
        self._is_needed = is_needed
        self._start = multiprocessing.process.BaseProcess.start
        self._popen = subprocess.Popen.__init__

    def follow(self) -> None:
        children, plain_start, plain_popen = self, self._start, self._popen

        @functools.wraps(plain_start)
        def start(process: Any) -> None:
            children._do(children._join, process)
            plain_start(process)

        @functools.wraps(plain_popen)
        def popen(process: Any, args: Any, *rest: Any, **options: Any) -> None:
            children._do(children._remember, args)
            plain_popen(process, args, *rest, **options)

        multiprocessing.process.BaseProcess.start = start  # type: ignore[assignment,method-assign]
        subprocess.Popen.__init__ = popen  # type: ignore[method-assign,assignment]

    def let_go(self) -> None:
        multiprocessing.process.BaseProcess.start = self._start  # type: ignore[method-assign]
        subprocess.Popen.__init__ = self._popen  # type: ignore[method-assign]

    def _join(self, process: Any) -> None:
        function: Any = getattr(process, "_target", None)
        if self._attend and _may_train(function) and self._is_needed():
            process._target = Watched(function=function, attend=self._attend)

    def _remember(self, args: Any) -> None:
        # Anything else can be iterated only once.
        if not self._is_needed() or not isinstance(args, (str, list, tuple)):
            return
        command = _as_script(args)
        if command and command not in self.commands and len(self.commands) < _MOST_COMMANDS:
            self.commands.append(command)


def _may_train(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return function is not None and (module == _SPAWN or not module.startswith(_CHORES))


def _as_script(args: Any) -> str | None:
    """The arguments of `python train.py --lr 1`: `train.py --lr 1`; None if it is not a script."""
    try:
        words = shlex.split(args) if isinstance(args, str) else [os.fspath(word) for word in args]
    except (TypeError, ValueError):
        return None
    if not words or not all(isinstance(word, str) for word in words):
        return None
    program, *rest = words
    if not Path(program).name.startswith("python"):
        return None
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0] == "-c":
            return None
        rest = rest[1:]
    is_script = bool(rest) and (rest[0] == "-m" or rest[0].endswith(".py"))
    return shlex.join(rest) if is_script and "_inductor" not in rest[0] else None
