"""Runs a script as if boundby were not present: its argv, path, `__main__`, exit code."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING

from boundby.capture.own_files import is_own_file
from boundby.model.errors import INTERRUPTED, BoundbyError

if TYPE_CHECKING:
    from boundby.capture.live_run import LiveCapture
    from boundby.capture.process.guard import Failure
    from boundby.capture.process.plan import How


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A script's path, or a module's name, with its own arguments."""

    name: str
    args: Sequence[str]
    is_module: bool


@dataclass(slots=True, kw_only=True)
class Ending:
    """How the script ended: its exit code, or its exception; and the capture."""

    exit_code: int
    error: BaseException | None = None
    capture: LiveCapture | None = None
    failure: Failure | None = None  # of boundby itself
    end_requested: bool = False
    refused: bool = False
    forked: bool = False
    started: list[str] = field(
        default_factory=list
    )  # commands that observe the scripts that it ran

    @property
    def how(self) -> How:
        if self.error is None:
            return "ended"
        return "was interrupted" if isinstance(self.error, KeyboardInterrupt) else "failed"


def execute(target: Target) -> Ending:
    """Run the script in this process, as `python` would run it."""
    if not target.is_module and not Path(target.name).is_file():
        raise BoundbyError(f"no such script: {target.name}")
    sys.argv = [target.name, *target.args]
    try:
        code, main = _module(target.name) if target.is_module else _script(target.name)
        # Permanently, because its threads and exit handlers live longer.
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # the script runs here
    except BoundbyError:
        raise
    except SystemExit as ended:
        return Ending(exit_code=_exit_code(ended))
    except KeyboardInterrupt as error:
        return Ending(exit_code=INTERRUPTED, error=error)
    except BaseException as error:  # noqa: BLE001 - it is the script's own, and is shown as such
        return Ending(exit_code=1, error=without_own_frames(error))
    return Ending(exit_code=0)


def without_own_frames(error: BaseException) -> BaseException:
    """The same exception, and those it came from, with tracebacks as they would be without
    boundby."""
    waiting: list[BaseException | None] = [error]
    done: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in done:
            continue
        done.add(id(current))
        current.__traceback__ = _without_our_frames(current.__traceback__)
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
    return error


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not is_own_file(trace.tb_frame.f_code.co_filename):
            kept.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for one in reversed(kept):
        following = TracebackType(following, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return following


def _script(name: str) -> tuple[CodeType, ModuleType]:
    path = str(Path(name).absolute())
    _look_first_in(str(Path(path).resolve().parent))
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    main = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = loader
    main.__package__ = None
    vars(main).update(__spec__=None, __cached__=None, __builtins__=__builtins__)
    return code, main


def _module(name: str) -> tuple[CodeType, ModuleType]:
    _look_first_in(str(Path.cwd()))
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
    if spec is None or not isinstance(spec.loader, importlib.abc.InspectLoader):
        raise BoundbyError(f"no module named {name} that can be run")
    code = spec.loader.get_code(spec.name)
    if code is None or spec.origin is None:
        raise BoundbyError(f"no module named {name} that can be run")
    sys.argv[0] = spec.origin
    main = ModuleType("__main__")
    main.__file__ = spec.origin
    main.__loader__ = spec.loader
    main.__package__ = spec.parent
    vars(main).update(__spec__=spec, __cached__=spec.cached, __builtins__=__builtins__)
    return code, main


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    """The file of a module; the packages around it are imported, as `python -m` does."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _look_first_in(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _exit_code(ended: SystemExit) -> int:
    """The exit code that Python derives from the argument of sys.exit."""
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    print(ended.code, file=sys.stderr)  # noqa: T201 - python prints a message given to sys.exit
    return 1
