"""Running somebody's script as if boundby were not there: its argv, path, `__main__`, exit code."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from boundby.capture.live.arrival import when_imported
from boundby.capture.live.hooks import Hooks
from boundby.capture.live.recorder import Capture, EnoughSteps, Recorder
from boundby.capture.live.steps import StepBy
from boundby.capture.live.windows import Plan
from boundby.errors import BoundbyError

# One script runs at a time: boundby.step() finds its recorder here.
_current: list[Recorder] = []


def mark_step() -> None:
    """Say that a step of the script ends here. Outside `boundby run` it does nothing."""
    if _current:
        _current[-1].mark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A script's path, or a module's name, with its own arguments."""

    name: str
    args: Sequence[str]
    is_module: bool


@dataclass(slots=True, kw_only=True)
class Ending:
    """How the script ended: its exit code, or the exception it died of; and what was captured."""

    capture: Capture | None
    exit_code: int
    error: BaseException | None = None
    refused: bool = False


def run_script(
    target: Target,
    *,
    plan: Plan,
    step_by: StepBy,
    folder: Path,
    keep_going: bool,
    on_refusal: Callable[[Capture], None],
) -> Ending:
    """Run the script under watch until it ends, or has been seen enough of.

    `on_refusal` gets the capture of a script that swallowed the request to end; it runs on,
    unwatched.
    """
    if not target.is_module and not Path(target.name).is_file():
        raise BoundbyError(f"no such script: {target.name}")
    watch = _Watch(plan, step_by, folder, keep_going, on_refusal)
    os.environ["BOUNDBY"] = "1"
    when_imported("torch", watch.torch_arrived)
    ending = _execute(target)
    ending.capture = watch.capture()
    ending.refused = watch.refused
    return ending


class _Watch:
    """The hooks of one run, from torch's arrival to the last step that is wanted."""

    def __init__(
        self,
        plan: Plan,
        step_by: StepBy,
        folder: Path,
        keep_going: bool,
        on_refusal: Callable[[Capture], None],
    ) -> None:
        self.refused = False
        self._plan = plan
        self._step_by: StepBy = step_by
        self._folder = folder
        self._keep_going = keep_going
        self._on_refusal = on_refusal
        self._hooks = Hooks()
        self._recorder: Recorder | None = None
        self._capture: Capture | None = None

    def torch_arrived(self, torch: ModuleType) -> None:
        self._recorder = Recorder(
            torch,
            plan=self._plan,
            step_by=self._step_by,
            folder=self._folder,
            on_done=self._enough,
        )
        _current.append(self._recorder)
        self._hooks.install(torch)
        self._hooks.watcher = self._recorder

    def capture(self) -> Capture | None:
        if self._capture is None and self._recorder is not None:
            self._hooks.watcher = None
            self._capture = self._recorder.capture()
        return self._capture

    def _enough(self) -> None:
        capture = self.capture()
        if self._keep_going:
            return
        assert capture is not None
        # Should the script catch this, its next step is the first sign that it did.
        self._hooks.watcher = _Refusal(self._refuse)
        raise EnoughSteps

    def _refuse(self) -> None:
        self._hooks.watcher = None
        self.refused = True
        assert self._capture is not None
        self._on_refusal(self._capture)


class _Refusal:
    """Watches for a script that goes on after it was asked to end."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        self._on_step = on_step

    def call_begins(self, *_: Any) -> None:
        self._on_step()

    def call_ends(self) -> None:
        return

    def backward_begins(self) -> None:
        return

    def backward_ends(self) -> None:
        return

    def optimizer_made(self, _: object) -> None:
        return

    def optimizer_begins(self, _: object) -> None:
        return

    def optimizer_ends(self, _: object) -> None:
        self._on_step()


def _execute(target: Target) -> Ending:
    """The script itself, in this process, as `python` would run it."""
    sys.argv = [target.name, *target.args]
    try:
        if target.is_module:
            sys.path[0] = str(Path.cwd())
            runpy.run_module(target.name, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(target.name).resolve().parent)
            runpy.run_path(target.name, run_name="__main__")
    except EnoughSteps:
        return Ending(capture=None, exit_code=0)
    except SystemExit as ended:
        return Ending(capture=None, exit_code=_exit_code(ended))
    except KeyboardInterrupt as error:
        return Ending(capture=None, exit_code=130, error=error)
    except BaseException as error:  # noqa: BLE001 - it is the script's own, and is shown as such
        return Ending(capture=None, exit_code=1, error=error)
    return Ending(capture=None, exit_code=0)


def _exit_code(ended: SystemExit) -> int:
    """What python makes of sys.exit's argument."""
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    print(ended.code, file=sys.stderr)  # noqa: T201 - python prints a message given to sys.exit
    return 1
