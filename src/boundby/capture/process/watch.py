"""Watches one script: hooks and recorders, from the import of torch or jax to the last step."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from boundby.capture.host.compiler import compiled_ns
from boundby.capture.host.random_state import random_state_kept
from boundby.capture.process.guard import Failure, Guard, failure_of, stopped_after
from boundby.capture.process.import_clock import time_imports
from boundby.capture.process.plan import How, Plan
from boundby.capture.process.refusal import OnRefusal, Refusal
from boundby.capture.process.run_clock import RunClock
from boundby.capture.process.run_hooks import RunHooks
from boundby.capture.process.step_finder import StepBy
from boundby.capture.process.windows import Window
from boundby.capture.torch.capture import Capture
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.recorder import Recorder
from boundby.model.note import Note

if TYPE_CHECKING:
    from boundby.capture.jax.hooks import JaxHooks
    from boundby.capture.jax.recorder import JaxCapture, JaxRecorder

# boundby waits for the end of an epoch if it is expected within the first limit, and then for the
# second limit at most for what the script does between two epochs.
_MOST_EPOCH_S = 10.0
_MOST_BETWEEN_EPOCHS_S = 10.0  # seconds; assumed


class Watch:
    """Installs the hooks of one run and takes its capture when enough steps were measured."""

    def __init__(
        self,
        plan: Plan,
        step_by: StepBy,
        folder: Path,
        keep_going: bool,
        on_refusal: OnRefusal,
        on_failure: Callable[[Failure], None],
    ) -> None:
        self.guard = Guard(self._failed)
        self.failure: Failure | None = None
        self.end_requested = False
        self.refused = False
        self._process = os.getpid()
        self._plan = plan
        self._step_by: StepBy = step_by
        self._folder = folder
        self._keep_going = keep_going
        self._on_refusal = on_refusal
        self._on_failure = on_failure
        self._hooks = Hooks(self.guard)
        self._recorder: Recorder | None = None
        self._jax_hooks: JaxHooks | None = None
        self._jax: JaxRecorder | None = None
        self._capture: Capture | JaxCapture | None = None
        self._is_taken = False
        self._on_enough: Callable[[Capture | JaxCapture], None] | None = None
        self._concluded = False
        self._run: RunClock | None = None
        self._run_hooks: RunHooks | None = None
        self._stop_imports: Callable[[], None] = lambda: None
        self._deadline = 0.0
        self.on_window: Callable[[Window, int, str | None], None] = lambda *_: None

    def time_run(self) -> None:
        """Start to divide the run into parts: import, setup, training, evaluation, ..."""
        self._run = RunClock(compiled_ns=compiled_ns)
        self._run_hooks = RunHooks(self._run, self.guard)
        self._run_hooks.install()
        self._stop_imports = time_imports(self._run, self._run_hooks.module_loaded)

    def begin_anew(
        self,
        plan: Plan,
        step_by: StepBy,
        folder: Path,
        *,
        keep_going: bool,
        on_enough: Callable[[Capture | JaxCapture], None] | None,
        on_failure: Callable[[Failure], None],
    ) -> None:
        """Reset for this process; a forked one has inherited state and hooks of the script's."""
        self._process = os.getpid()
        self._plan, self._step_by, self._folder = plan, step_by, folder
        self._keep_going, self._on_enough = keep_going, on_enough
        self._on_failure, self.failure = on_failure, None
        self._recorder = self._jax = self._capture = None
        self._is_taken = False
        self._run = None

    def main_kind(self) -> str | None:
        recorder = self._chosen
        return recorder.windows.main_kind if recorder is not None else None

    def unseen(self, act: Callable[[], Any]) -> Any:
        watcher, self._hooks.watcher = self._hooks.watcher, None
        jax_hooks = self._jax_hooks
        jax_watcher = jax_hooks.watcher if jax_hooks is not None else None
        if jax_hooks is not None:
            jax_hooks.watcher = None
        try:
            return act()
        finally:
            self._hooks.watcher = watcher
            if jax_hooks is not None:
                jax_hooks.watcher = jax_watcher

    @property
    def jax_recorder(self) -> JaxRecorder | None:
        return self._jax

    @property
    def has_steps(self) -> bool:
        recorder = self._chosen
        return recorder is not None and recorder.windows.steps > 0

    @property
    def _chosen(self) -> Recorder | JaxRecorder | None:
        """The recorder of the framework that takes the steps."""
        if self._recorder is None or self._jax is None:
            return self._recorder or self._jax
        is_jax = self._jax.windows.steps > self._recorder.windows.steps
        return self._jax if is_jax else self._recorder

    @property
    def is_forked(self) -> bool:
        """Whether this is a copy, in a process that the script forked off."""
        return os.getpid() != self._process

    def torch_arrived(self, torch: ModuleType) -> None:
        self.guard.do(self._begin, torch)

    def _begin(self, torch: ModuleType) -> None:
        if self.is_forked or self._recorder is not None:
            return
        self._recorder = Recorder(
            torch,
            plan=self._plan,
            step_by=self._step_by,
            folder=self._folder,
            on_done=self._enough,
            on_first_step=self._first_step,
            guard=self.guard,
            run=self._run,
            on_window=self.on_window,
        )
        if not self._hooks.is_installed:
            self._hooks.install(torch)
        if self._run_hooks is not None:
            self._run_hooks.torch_arrived(torch)
        self._hooks.watcher = self._recorder
        self._hooks.graphs = self._recorder.graphs

    def jax_arrived(self, jax: ModuleType) -> None:
        self.guard.do(self._begin_jax, jax)

    def _begin_jax(self, jax: ModuleType) -> None:
        if self.is_forked or self._jax is not None:
            return
        from boundby.capture.jax.hooks import JaxHooks
        from boundby.capture.jax.recorder import JaxRecorder

        self._jax_hooks = JaxHooks(self.guard)
        self._jax = JaxRecorder(
            jax,
            plan=self._plan,
            by_marks=self._step_by == "mark",
            folder=self._folder,
            on_done=self._enough,
            hooks=self._jax_hooks,
            guard=self.guard,
            on_first_step=self._stop_imports,
            run=self._run,
        )
        self._jax_hooks.install(jax)
        self._jax_hooks.watcher = self._jax

    def _first_step(self) -> None:
        self._stop_imports()
        self._hooks.narrow()

    def mark(self) -> None:
        if self._jax_hooks is not None and (self._recorder is None or self._chosen is self._jax):
            if self._jax is not None and self._jax_hooks.watcher is self._jax:
                self.guard.do(self._jax.mark)
            elif self._jax_hooks.watcher is not None:
                self.guard.do(self._refuse)
            return
        watcher = self._hooks.watcher
        if watcher is not None and watcher is self._recorder:
            self.guard.do(self._recorder.mark)
        elif watcher is not None:
            self.guard.do(self._refuse)

    def last_capture(self, *, how: How) -> Capture | JaxCapture | None:
        """The capture of a script that has ended; None without steps or if taking it failed."""
        if self._run is not None:
            self._run.stop()
        try:
            capture = self._take(how=how)
            self._stop_imports()
            if capture is not None and capture.run is None:
                self._account(capture)
        except Exception as error:  # noqa: BLE001 - reported after the script's own error
            self.failure = failure_of("the result cannot be shown", [error])
            return None
        return capture

    def conclude(self, conclude: Callable[[Capture | JaxCapture], None]) -> None:
        """The watched function has ended before enough of its steps were measured."""
        capture = self._take()
        if capture is not None and not self._concluded and capture.main_kind is not None:
            conclude(capture)

    def _take(self, *, how: How = "ended") -> Capture | JaxCapture | None:
        recorder = self._chosen
        if not self._is_taken and recorder is not None:
            self._is_taken = True
            self._watch_by(None)
            self._capture = recorder.capture(how=how)
            if self._run is not None and self._keep_going:
                # The run is still divided into parts; its steps are no longer measured.
                self._hooks.watcher = self._recorder
                if self._jax_hooks is not None:
                    self._jax_hooks.watcher = self._jax
            if self.failure is not None:
                note = Note(code="observer-failed", text=self.failure.line)
                self._capture.notes.append(note)
        return self._capture

    def _account(self, capture: Capture | JaxCapture) -> None:
        if self._run is not None and capture.main_kind is not None:
            capture.run = self._run.parts(capture.main_kind, is_cut=self.end_requested)

    def _take_enough(self) -> None:
        capture = self._take()
        if self._on_enough is not None and capture is not None:
            self._concluded = True
            # The process goes on after its diagnosis was made in it.
            with random_state_kept():
                self._on_enough(capture)

    def _enough(self) -> None:
        self.guard.do(self._take_enough)
        if self._keep_going:
            return
        left_ns = self._run.epoch_left_ns if self._run is not None else None
        if left_ns is not None and self._waits_for_epoch(left_ns / 1e9):
            return
        self._end_script()

    def _waits_for_epoch(self, left_s: float) -> bool:
        """Whether to let the script continue until the end of its first epoch.

        Evaluation, checkpoints and the restart of workers happen there. Not if the end is far, a
        number of steps was requested, or other ranks would continue without this one.
        """
        recorder = self._recorder
        if recorder is None or self._plan.in_step or not self._plan.sees_epochs:
            return False
        if left_s > _MOST_EPOCH_S:
            return False
        self._deadline = time.monotonic() + left_s + _MOST_BETWEEN_EPOCHS_S
        recorder.after_done = self._ask_for_epoch
        self._hooks.watcher = recorder
        return True

    def _ask_for_epoch(self) -> None:
        """A step has ended while the end of the epoch is awaited."""
        is_over = self._run is None or self._run.seen_epochs > 0
        if is_over or time.monotonic() > self._deadline:
            self._end_script()

    def _end_script(self) -> None:
        if self._serves_in_thread:
            # Whoever waits for a result of this thread would wait for ever.
            self._refuse("serves in a thread")
            return
        if self._capture is not None:
            self.end_requested = True
            self.guard.do(self._account, self._capture)
        # If the script catches the SystemExit below, its next step shows that it did.
        self._watch_by(_Refusal(self._refuse))
        self.end_requested = True
        # Not a subclass: for any other class, Python prints a traceback if a thread raises it.
        raise SystemExit(0)

    @property
    def _serves_in_thread(self) -> bool:
        """Whether the steps are calls of a model on another thread than the main one."""
        recorder = self._recorder
        is_main = threading.current_thread() is threading.main_thread()
        return not is_main and recorder is not None and recorder.finder.found_by == "forward"

    def _watch_by(self, refusal: _Refusal | None) -> None:
        self._hooks.watcher = refusal
        if self._jax_hooks is not None:
            self._jax_hooks.watcher = refusal

    def _refuse(self, why: Refusal = "caught the end") -> None:
        self._watch_by(None)
        self.refused = True
        if self._capture is not None:
            self._account(self._capture)
            self._on_refusal(self._capture, why)

    def _failed(self, error: Exception) -> None:
        """Code of boundby has raised inside the script: stop watching, let the script continue."""
        recorder, is_first = self._chosen, self.failure is None
        self._watch_by(None)
        self._hooks.graphs = None
        errors = [error]
        if recorder is not None and is_first:
            # All ranks of a job must end after the same step: the others would wait forever.
            counts = self._plan.in_step and not self._keep_going and not self._is_taken
            errors += recorder.give_up(count_on=counts)
            if counts and recorder is self._jax and self._jax_hooks is not None:
                self._jax_hooks.watcher = self._jax
            elif counts:
                self._hooks.watcher = self._recorder
        steps = recorder.windows.steps if recorder is not None else 0
        self.failure = failure_of(stopped_after(steps), errors)
        self._on_failure(self.failure)


class _Refusal:
    """Detects a script that continues after it was end_requested to end."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        self._on_step = on_step

    def call_begins(self, *_: Any) -> None:
        self._on_step()

    def calls(self, *_: Any) -> None:
        """A compiled function of JAX begins."""
        self._on_step()

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

    def batch_came(self, _: int, __: int, ___: int | None = None) -> None:
        return
