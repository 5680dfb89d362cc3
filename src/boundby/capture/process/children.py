"""Processes that a script starts, because its steps may be in one of them.

`torch.multiprocessing.spawn` and `multiprocessing.Process` pass a function to a new process: it is
wrapped in a `Watched`, which watches there as the script is watched here. A command run with
`subprocess`, `os.system` or `os.exec*` is another script, and only its name is kept.

Nothing is done for a script that has taken steps itself: its workers must not be disturbed.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.commands import observing
from boundby.capture.process.guard import Guard
from boundby.runtime.patching import PatchSet

# Modules whose processes are workers: loading data, compiling, pools.
_CHORES = ("torch.", "multiprocessing.", "concurrent.")
_SPAWN = "torch.multiprocessing.spawn"
_MOST_COMMANDS = 3  # display limit

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
        self,
        attend: Attend | None,
        is_needed: Callable[[], bool],
        guard: Guard | None = None,
        on_replacement: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_replacement` gets the command by which the script is about to replace its process:
        nothing of boundby runs after it."""
        self.commands: list[str] = []  # that observe what the script ran
        self._do = (guard or Guard()).do
        self._attend = attend
        self._is_needed = is_needed
        self._on_replacement = on_replacement
        self._swaps = PatchSet()

    def follow(self) -> None:
        self._swaps.swap(multiprocessing.process.BaseProcess, "start", self._around_start)
        self._swaps.swap(subprocess.Popen, "__init__", self._around_popen)
        self._swaps.swap(os, "system", self._around_system)
        # The other forms of exec call these.
        self._swaps.swap(os, "execv", self._around_exec)
        self._swaps.swap(os, "execve", self._around_exec)

    def let_go(self) -> None:
        self._swaps.undo()

    def _around_start(self, original: Any) -> Any:
        children = self

        @functools.wraps(original)
        def start(process: Any) -> None:
            children._do(children._join, process)
            original(process)

        return start

    def _around_popen(self, original: Any) -> Any:
        children = self

        @functools.wraps(original)
        def popen(process: Any, args: Any, *rest: Any, **options: Any) -> None:
            children._do(children._remember, args, options.get("env"))
            original(process, args, *rest, **options)

        return popen

    def _around_system(self, original: Any) -> Any:
        children = self

        @functools.wraps(original)
        def system(command: Any) -> Any:
            children._do(children._remember, command)
            return original(command)

        return system

    def _around_exec(self, original: Any) -> Any:
        children = self

        @functools.wraps(original)
        def execute(path: Any, args: Any, *environment: Any) -> Any:
            children._do(children._replaced, args, *environment)
            return original(path, args, *environment)

        return execute

    def _join(self, process: Any) -> None:
        function: Any = getattr(process, "_target", None)
        if self._attend and _may_train(function) and self._is_needed():
            process._target = Watched(function=function, attend=self._attend)

    def _remember(self, args: Any, environment: Any = None) -> str | None:
        # Anything else can be iterated only once.
        if not self._is_needed() or not isinstance(args, (str, list, tuple)):
            return None
        command = observing(args, environment)
        if command and command not in self.commands and len(self.commands) < _MOST_COMMANDS:
            self.commands.append(command)
        return command

    def _replaced(self, args: Any, environment: Any = None) -> None:
        if command := self._remember(args, environment):
            self._on_replacement(command)


def _may_train(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return function is not None and (module == _SPAWN or not module.startswith(_CHORES))
