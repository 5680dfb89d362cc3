"""Handles a script's capture: diagnosed, written, printed; also in processes that the script
starts."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boundby.cli.left_running import end_what_is_left
from boundby.cli.outputs import Outputs
from boundby.cli.own_streams import OwnStreams, flush_all

if TYPE_CHECKING:
    from boundby.capture.live_run import LiveCapture
    from boundby.capture.process.children import Watched
    from boundby.capture.process.execution import Ending
    from boundby.capture.process.guard import Failure
    from boundby.capture.process.plan import Plan
    from boundby.capture.process.refusal import Refusal
    from boundby.capture.process.step_finder import StepBy
    from boundby.model.diagnosis import Diagnosis
    from boundby.model.machine import Machine
    from boundby.model.observation import Observation
    from boundby.session.saved import RecordingTimer

_ENDED = (
    "boundby ended the script after enough steps; its later output is missing: "
    "--continue lets it run to its end"
)
_CONTINUES: dict[Refusal, str] = {
    "caught the end": (
        "the script caught the exception with which boundby ends it (a bare except?): it "
        "continues unobserved, without the rest of that iteration"
    ),
    "serves in a thread": (
        "the script calls its model in a thread other than the main one: boundby does not end it, "
        "because others may wait for that thread; it continues unobserved until you end it"
    ),
}
# Written by a process of the script after its diagnosis; empty if that failed.
_OF_CHILDREN = "children.json"
_CLAIM = "claimed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOptions:
    """Options of a diagnosis; pickled for processes that the script starts."""

    name: str
    outputs: Outputs
    out: Path | None
    machine_file: Path | None


class Results:
    """Diagnoses a capture, writes and prints the result."""

    def __init__(
        self, wanted: DiagnosisOptions, *, rank: int, world: int, is_child: bool = False
    ) -> None:
        self._wanted = wanted
        self._rank = rank
        out = wanted.out
        self._out = out / f"rank{rank}" if out is not None and world > 1 else out
        self._quiet = wanted.outputs.quiet or rank > 0
        self._local_rank = rank if is_child else int(os.environ.get("LOCAL_RANK", "0"))
        is_aside = wanted.outputs.json_file == "-" and not is_child
        self._stdout = _redirect_stdout() if is_aside else None
        self._streams = OwnStreams()
        self._reported: list[Failure] = []
        # The inputs of the diagnosis.
        self._kept: tuple[Observation, Machine, RecordingTimer | None] | None = None

    def refused(self, capture: LiveCapture, why: Refusal) -> None:
        """Called inside the script, between two of its steps: nothing may be raised here."""
        with self._streams.used():
            _print_line(_CONTINUES[why])
            self._conclude(capture, must_succeed=False)

    def replaced(self, command: str) -> None:
        """The script is about to run another program in its process: boundby ends with it."""
        with self._streams.used():
            _print_line(f"the script replaces itself by another: if the steps run there, {command}")

    def failed(self, failure: Failure) -> None:
        """boundby failed inside the script, which continues."""
        self._reported.append(failure)
        path = failure.keep(self._out)
        with self._streams.used():
            _print_line(
                f"{failure.line} (in full: {path})" if path else f"{failure.line}\n{failure.text}"
            )

    def ended(self, ending: Ending, folder: Path) -> None:
        """The script ended: show its exception as Python does, then the results.

        `folder`: where the processes that it started saved their results.
        """
        error = ending.error
        if error is not None and not isinstance(error, KeyboardInterrupt):
            flush_all()
            sys.excepthook(type(error), error, error.__traceback__)
        with self._streams.used():
            self._end(ending, folder)

    def _end(self, ending: Ending, folder: Path) -> None:
        error = ending.error
        if error is not None and not isinstance(error, KeyboardInterrupt) and ending.end_requested:
            _print_line("the script raised this while boundby ended it")
        for failure in (ending.failure, ending.capture.failure if ending.capture else None):
            if failure is not None and failure not in self._reported:
                self.failed(failure)
        children = folder / _OF_CHILDREN
        has_steps = ending.capture is not None and ending.capture.main_kind is not None
        if not has_steps and children.exists():
            self._write_stdout(children.read_bytes())
        elif not ending.refused and (ending.failure is None or has_steps):
            # The exit code is that of the script's failure, not of boundby's.
            succeeded = not ending.exit_code and ending.failure is None
            if succeeded or not _has_no_steps(ending.capture):
                self._conclude(
                    ending.capture, must_succeed=succeeded, started=tuple(ending.started)
                )
            if ending.exit_code and not has_steps:
                with_code = f" with exit code {ending.exit_code}" * (ending.how == "ended")
                _print_failure(
                    f"the script {ending.how}{with_code} before a step was found", by_script=True
                )
        if ending.end_requested:
            if not self._quiet and not ending.refused and error is None:
                _print_line(_ENDED)
            end_what_is_left(ending.exit_code)

    def exits(self, ending: Ending, folder: Path) -> None:
        """The script calls `os._exit`: show the results now; its exit code stays its own."""
        from boundby.model.errors import BoundbyError

        try:
            self.ended(ending, folder)
        except BoundbyError as error:
            with self._streams.used():
                _print_failure(str(error))

    def _conclude(
        self, capture: LiveCapture | None, *, must_succeed: bool, started: tuple[str, ...] = ()
    ) -> Diagnosis | None:
        """Diagnose what was captured; also of a script that failed."""
        from boundby.capture.process.guard import failure_of
        from boundby.model.errors import BoundbyError

        try:
            if capture is None:
                others = " or ".join(started)
                hint = f"; it started others: if the steps run there, {others}" if others else ""
                raise BoundbyError(
                    f"{self._wanted.name} ended without importing torch or jax: there was nothing "
                    f"to observe{hint}"
                )
            diagnosis = self._diagnose(capture)
        except BoundbyError as error:
            if must_succeed:
                raise
            _print_failure(str(error))
            return None
        except Exception as error:
            if must_succeed:
                raise
            # The exit code is that of the script's failure, not of boundby's.
            self.failed(failure_of("the result cannot be shown", [error]))
            return None
        try:
            self._save(diagnosis, capture)
        except BoundbyError as error:
            # The diagnosis is shown even if it cannot be saved.
            self._show(diagnosis)
            if must_succeed:
                raise
            _print_failure(str(error))
        else:
            self._show(diagnosis)
        return diagnosis

    def _show(self, diagnosis: Diagnosis) -> None:
        if self._quiet:
            return
        from boundby.cli.console import error_console
        from boundby.report.terminal import DiagnosisReport

        console = error_console()
        # An ended script may have left a line unfinished, as progress bars do.
        console.print()
        console.print(DiagnosisReport(diagnosis, verbose=self._wanted.outputs.verbose))

    def _diagnose(self, capture: LiveCapture) -> Diagnosis:
        from boundby.capture.live_run import observe
        from boundby.cli.console import progress_bar
        from boundby.diagnosis import diagnose, require_step
        from boundby.hardware import cache
        from boundby.session import live, saved

        observation = observe(capture, target=self._wanted.name)
        require_step(observation)
        if self._wanted.machine_file is not None:
            machine = cache.read(self._wanted.machine_file)
        else:
            with progress_bar("measuring", shown=not self._quiet) as progress:
                machine = live.machine_of(
                    observation,
                    measured_elsewhere=self._local_rank > 0,
                    progress=progress,
                    notice=_print_line,
                )
        with (
            progress_bar("timing", shown=not self._quiet) as progress,
            live.timer_of(observation, machine, progress=progress) as timer,
        ):
            recording = saved.RecordingTimer(timer) if timer is not None else None
            diagnosis = diagnose(observation, machine, timer=recording)
        self._kept = (observation, machine, recording)
        return diagnosis

    def _save(self, diagnosis: Diagnosis, capture: LiveCapture) -> None:
        from boundby.model import store
        from boundby.session import saved

        outputs = self._wanted.outputs
        if self._rank == 0:
            if outputs.json_file == "-":
                self._write_stdout(store.as_json(diagnosis))
            elif outputs.json_file:
                store.write(diagnosis, Path(outputs.json_file))
            outputs.write_reports(diagnosis)
        if self._out is not None:
            store.write(diagnosis, self._out / saved.DIAGNOSIS)
            if self._kept is not None:
                saved.save(self._out, *self._kept)
            if capture.trace is not None:
                store.copy(capture.trace, self._out / saved.TRACE)

    def _write_stdout(self, text: bytes) -> None:
        if self._stdout is not None:
            with os.fdopen(self._stdout, "wb") as stdout:
                stdout.write(text + b"\n")

    def of_child(self, capture: LiveCapture, left: Path) -> None:
        """Conclude in a process started by the script; the script's own process finds the
        result."""
        from boundby.model import store

        diagnosis = self._conclude(capture, must_succeed=False)
        if self._rank == 0:
            left.write_bytes(store.as_json(diagnosis) if diagnosis else b"")


def _has_no_steps(capture: LiveCapture | None) -> bool:
    """Whether a script ended before anything that could be a step ran."""
    return capture is None or not (any(capture.seen.values()) or capture.started)


def attend_child(
    watched: Watched,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    wanted: DiagnosisOptions,
    folder: Path,
    plan: Plan,
    step_by: StepBy,
    keep_going: bool,
) -> Any:
    """Run a function in a process that the script started, and conclude there."""
    from boundby.capture.process.script import attend_to

    try:
        child_folder = Path(tempfile.mkdtemp(dir=folder))
    except OSError:
        # The script's own process has ended: nothing would read the result.
        return watched.function(*args, **kwargs)

    def fail(failure: Failure) -> None:
        Results(wanted, rank=watched.number(args) or 0, world=1, is_child=True).failed(failure)

    def conclude(capture: LiveCapture) -> None:
        number = capture.rank if capture.rank is not None else watched.number(args)
        if number is None and not _claim(folder / _CLAIM):
            return
        # Spawned processes without a common world are numbered too.
        world = capture.world or (1 if number is None else 2)
        if not number and not wanted.outputs.quiet:
            who = "ranks" if world > 1 else "a process"
            continues = "" if watched.is_spawned_rank else "; the script continues"
            _print_line(f"the steps run in {who} started by the script{continues}")
        results = Results(wanted, rank=number or 0, world=world, is_child=True)
        results.of_child(capture, folder / _OF_CHILDREN)

    return attend_to(
        watched,
        args,
        kwargs,
        plan=plan,
        step_by=step_by,
        folder=child_folder,
        keep_going=keep_going,
        conclude=conclude,
        on_failure=fail,
    )


def _claim(path: Path) -> bool:
    """Whether this process is the one that is shown: the first of several independent ones."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _redirect_stdout() -> int:
    """Keep stdout for the JSON alone; what the script prints goes to stderr."""
    stdout_copy = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    return stdout_copy


def _print_line(line: str) -> None:
    click.echo(f"boundby: {line}", err=True)


def _print_failure(reason: str, *, by_script: bool = False) -> None:
    from boundby.model.run_failure import RunFailure, is_written

    if not is_written(RunFailure(reason=reason, by_script=by_script)):
        _print_line(reason)
