"""Lines of the script: the one that runs, and those at which settings were made."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from boundby.capture.jax import compat
from boundby.capture.kineto.names import Origin, origin_of
from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.guard import Guard
from boundby.runtime.patching import PatchSet

Place = tuple[str, int]  # a file and a line of it


def users_place() -> Place | None:
    """The file and line of the script that runs now: of the innermost frame in no library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and origin_of(frame.f_code.co_filename) is not Origin.USER:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


@skipped_by_warnings
class NotedPlaces:
    """Where the script calls `jax.checkpoint`, and where it switches float64 on."""

    def __init__(self, guard: Guard) -> None:
        self.checkpoints: dict[Place, None] = {}  # in order
        self.doubles: dict[Place, None] = {}
        self._guard = guard

    def install(self, jax: Any, patches: PatchSet) -> None:
        for path, name in compat.CHECKPOINTS:
            owner = compat.namespace(jax, path)
            if owner is not None:
                patches.swap(owner, name, self._checkpoint)
        patches.swap(type(jax.config), "update", self._setting)

    def _checkpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            self._note(self.checkpoints)
            return original(*args, **kwargs)

        return make

    def _setting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def update(config: Any, *args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]  # a name and a value, by position or by keyword
            if compat.DOUBLES in given[:2] and any(one is True for one in given):
                self._note(self.doubles)
            return original(config, *args, **kwargs)

        return update

    def _note(self, places: dict[Place, None]) -> None:
        place = self._guard.do(users_place)
        if place is not None:
            places[place] = None
