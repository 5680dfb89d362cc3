"""Times imports, until the first step of the model: only those that load something.

CPython looks `_find_and_load` up in importlib's core for every module that is not loaded yet, and
only then: imports of loaded modules cost nothing. The replacement has importlib's own file name, so
that tracebacks and the stack levels of warnings leave it out as they do importlib's frames.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from boundby.capture.process.run_clock import RunClock

_NAME = "_find_and_load"


def time_imports(run: RunClock, loaded: Callable[[str], None]) -> Callable[[], None]:
    """Start to time imports of this thread; returns a function that stops it.

    `loaded` gets the name of every module that was loaded, also inside other imports.
    """
    core = sys.modules.get("_frozen_importlib")
    original: Any = getattr(core, _NAME, None)
    if core is None or not isinstance(original, types.FunctionType):
        return lambda: None  # another Python: imports then count as setup
    find_and_load: Any = original
    thread, depth = threading.get_ident(), [0]

    def begin(name: str) -> bool:
        if threading.get_ident() != thread:
            return False
        depth[0] += 1
        if depth[0] == 1:
            run.enter("import", name.partition(".")[0])
        return True

    def end(name: str) -> None:
        depth[0] -= 1
        if depth[0] == 0:
            run.leave()
        loaded(name)

    def _find_and_load(name: Any, import_: Any) -> Any:
        if not begin(name):
            return find_and_load(name, import_)
        try:
            return find_and_load(name, import_)
        finally:
            end(name)

    ours = types.FunctionType(
        _find_and_load.__code__.replace(co_filename=original.__code__.co_filename),
        original.__globals__,
        _NAME,
        closure=_find_and_load.__closure__,
    )
    setattr(core, _NAME, ours)

    def stop() -> None:
        if getattr(core, _NAME) is ours:
            setattr(core, _NAME, original)

    return stop
