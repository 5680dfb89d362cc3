"""Runs a script under watch, until it ends or enough of its steps were measured."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from boundby.capture.process.children import Attend, Children, Watched
from boundby.capture.process.execution import Ending, Target, execute
from boundby.capture.process.guard import Failure
from boundby.capture.process.plan import Plan
from boundby.capture.process.refusal import OnRefusal
from boundby.capture.process.step_finder import StepBy
from boundby.capture.process.watch import Watch
from boundby.capture.process.windows import Window
from boundby.capture.torch.capture import Capture
from boundby.runtime.import_hooks import when_imported
from boundby.runtime.patching import PatchSet

if TYPE_CHECKING:
    from boundby.capture.jax.recorder import JaxCapture, JaxRecorder

# The watch of the running script, for `boundby.step()`; one script runs at a time.
_current: list[Watch] = []


def mark_step() -> None:
    """Mark the end of a step of the script. Outside `boundby run` it does nothing."""
    if _current:
        _current[-1].mark()


def main_kind() -> str | None:
    """The kind of step that took most of the script's time so far."""
    return _current[-1].main_kind() if _current else None


def jax_recorder() -> JaxRecorder | None:
    """The recorder of the script's JAX calls; None before it imports jax."""
    return _current[-1].jax_recorder if _current else None


def unseen(act: Callable[[], Any]) -> Any:
    """Call `act` and return its result, without counting its calls as part of a step."""
    return _current[-1].unseen(act) if _current else act()


def run_script(
    target: Target,
    *,
    plan: Plan,
    step_by: StepBy,
    folder: Path,
    keep_going: bool,
    on_refusal: OnRefusal,
    on_failure: Callable[[Failure], None],
    attend: Attend | None = None,
    on_window: Callable[[Window, int, str | None], None] = lambda *_: None,
    on_replacement: Callable[[str], None] = lambda _: None,
    on_exit: Callable[[Ending], None] | None = None,
) -> Ending:
    """Run the script under watch until it ends, or enough of its steps were measured.

    `on_refusal` gets the capture of a script that caught the request to end, or is not asked to:
    it continues unwatched. So it does after an error of boundby, which `on_failure` gets.
    `attend` runs a function in a process that the script starts, with `attend_to`. `on_window` gets
    each measurement window of this process when it opens, the number of steps so far and their
    main kind. `on_exit` gets the ending of a script that calls `os._exit`: nothing runs after it.
    """
    watch = Watch(plan, step_by, folder, keep_going, on_refusal, on_failure)
    watch.on_window = on_window
    watch.time_run()
    children = Children(attend, lambda: not watch.has_steps, watch.guard, on_replacement)
    os.environ["BOUNDBY"] = "1"
    when_imported("torch", watch.torch_arrived)
    stop_waiting = when_imported("jax", watch.jax_arrived)
    exits = PatchSet()
    if on_exit is not None:
        exits.swap(os, "_exit", functools.partial(_around_exit, watch, children, on_exit))
    _current.append(watch)
    children.follow()
    try:
        ending = execute(target)
    finally:
        exits.undo()
        stop_waiting()
        children.let_go()
        _current.remove(watch)
    if watch.is_forked:
        ending.forked = True
        return ending
    return _complete(ending, watch, children)


def _around_exit(
    watch: Watch,
    children: Children,
    on_exit: Callable[[Ending], None],
    leave: Callable[[int], NoReturn],
) -> Callable[[int], NoReturn]:
    """Ends the process after its results; not those forked from it, nor from another thread, which
    may do so because the script's own is stuck."""
    main = threading.main_thread()

    @functools.wraps(leave)
    def _exit(status: int) -> NoReturn:
        if not watch.is_forked and threading.current_thread() is main:
            watch.guard.do(lambda: on_exit(_complete(Ending(exit_code=status), watch, children)))
        leave(status)

    return _exit


def _complete(ending: Ending, watch: Watch, children: Children) -> Ending:
    """Add what was seen of the script."""
    ending.started = children.commands
    ending.capture = watch.last_capture(how=ending.how)
    if ending.capture is not None:
        ending.capture.started = children.commands
    ending.failure = watch.failure
    ending.end_requested = watch.end_requested
    ending.refused = watch.refused
    return ending


def attend_to(
    watched: Watched,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    plan: Plan,
    step_by: StepBy,
    folder: Path,
    keep_going: bool,
    conclude: Callable[[Capture | JaxCapture], None],
    on_failure: Callable[[Failure], None],
) -> Any:
    """Run a function that the script passed to this process, under watch.

    A spawned rank is ended when enough of its steps were measured, as a script is. Any other
    function continues unwatched: another process may wait for its result.
    """
    ends = watched.is_spawned_rank and not keep_going
    seen = conclude if not watched.is_spawned_rank else None
    watch = (
        _current[-1]
        if _current
        else Watch(plan, step_by, folder, not ends, lambda one, _: conclude(one), on_failure)
    )
    watch.begin_anew(
        plan, step_by, folder, keep_going=not ends, on_enough=seen, on_failure=on_failure
    )
    when_imported("torch", watch.torch_arrived)
    try:
        return watched.function(*args, **kwargs)
    finally:
        watch.guard.do(watch.conclude, conclude)
