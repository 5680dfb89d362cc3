"""boundby run: diagnose an unmodified script."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli.outputs import page_options, write_page
from boundby.cli.target import TargetCommand, target_of

if TYPE_CHECKING:
    from boundby.capture.live.execution import Ending
    from boundby.capture.live.recorder import Capture
    from boundby.model.diagnosis import Diagnosis

# Ranks of a job must take the same number of steps, or the slower ones wait for ever.
_WARMUP_OF_JOBS = 8
# How long threads of a script that was ended may go on before a word is said.
_PATIENCE_WITH_THREADS_S = 3.0


@click.command(name="run", cls=TargetCommand, context_settings={"allow_interspersed_args": False})
@click.option("--warmup", type=click.IntRange(1), help="Warm-up steps; default: until stable.")
@click.option(
    "--steps", type=click.IntRange(1), help="Clean steps; default: 10, some more if they vary."
)
@click.option(
    "--profiled", type=click.IntRange(0), default=3, show_default=True, help="Profiled steps."
)
@click.option(
    "--step-by",
    type=click.Choice(["auto", "optimizer", "forward"]),
    default="auto",
    help="What ends a step; default: found out.",
)
@click.option("--continue", "keep_going", is_flag=True, help="Let the script run to its own end.")
@click.option(
    "--machine",
    "machine_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use roofs saved with `boundby machine --json`.",
)
@page_options
@click.option("--json", "json_file", metavar="FILE", help="Write the diagnosis (- for stdout).")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep the diagnosis and the raw trace.",
)
@click.option("--quiet", is_flag=True, help="Print no report.")
@click.argument("target", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def command(
    warmup: int | None,
    steps: int | None,
    profiled: int,
    step_by: str,
    keep_going: bool,
    machine_file: Path | None,
    html_file: str | None,
    perfetto_file: str | None,
    open_page: bool,
    json_file: str | None,
    out: Path | None,
    quiet: bool,
    target: tuple[str, ...],
) -> int:
    """Diagnose an unmodified script: boundby run [OPTIONS] train.py --its --own --options.

    \b
    A module is run with -m: boundby run [OPTIONS] -m pkg.train --its --options
    """
    from boundby.capture.live.plan import plan_of
    from boundby.capture.live.script import run_script

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and warmup is None:
        warmup = _WARMUP_OF_JOBS
    script = target_of(target)
    results = _Results(
        script.name,
        json_file=json_file,
        write_page=partial(
            write_page,
            html_file=html_file,
            perfetto_file=perfetto_file,
            open_page=open_page,
            quiet=quiet,
        ),
        out=out,
        quiet=quiet,
        rank=rank,
        world=world,
        machine_file=machine_file,
    )
    process = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix="boundby-"))
    try:
        ending = run_script(
            script,
            plan=plan_of(warmup=warmup, steps=steps, profiled=profiled, in_step=world > 1),
            step_by=step_by,  # type: ignore[arg-type]
            folder=folder,
            keep_going=keep_going,
            on_refusal=results.refused,
        )
        if not ending.forked:
            results.ended(ending)
    finally:
        # A process that the script forked off comes by here too.
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)
    return ending.exit_code


class _Results:
    """What becomes of a capture: diagnosed, written, printed."""

    def __init__(
        self,
        name: str,
        *,
        json_file: str | None,
        write_page: Callable[[Diagnosis], None],
        out: Path | None,
        quiet: bool,
        rank: int,
        world: int,
        machine_file: Path | None,
    ) -> None:
        self._name = name
        self._rank = rank
        self._json_file = json_file
        self._write_page = write_page
        self._out = out / f"rank{rank}" if out is not None and world > 1 else out
        self._quiet = quiet or rank > 0
        self._machine_file = machine_file
        self._stdout = _set_stdout_aside() if json_file == "-" else None

    def refused(self, capture: Capture) -> None:
        """Called inside the script, between two of its steps: nothing may be raised here."""
        _say("the script was asked to end and goes on; it is not watched any more")
        self._conclude(capture, must_succeed=False)

    def ended(self, ending: Ending) -> None:
        """The script is over: what it died of is shown as python does, then what was seen."""
        error = ending.error
        if error is not None and not isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            sys.excepthook(type(error), error, error.__traceback__)
            if ending.asked:
                _say("the script raised this when it was asked to end")
        if not ending.refused:
            # The script's own failure is what its exit code tells.
            self._conclude(ending.capture, must_succeed=not ending.exit_code)
        if ending.asked:
            _mind_threads()

    def _conclude(self, capture: Capture | None, *, must_succeed: bool) -> None:
        """Diagnose what was captured; a script that failed still yields what there is."""
        from boundby.errors import BoundbyError

        try:
            if capture is None:
                raise BoundbyError(
                    f"{self._name} ended without importing torch: there was nothing to watch"
                )
            diagnosis = self._diagnose(capture)
            self._save(diagnosis, capture)
        except BoundbyError as error:
            if must_succeed:
                raise
            _say(str(error))
            return
        if not self._quiet:
            from boundby.cli.console import error_console
            from boundby.report.terminal import DiagnosisReport

            error_console().print(DiagnosisReport(diagnosis))

    def _diagnose(self, capture: Capture) -> Diagnosis:
        from boundby import observation
        from boundby.cli.console import progress_bar
        from boundby.diagnosis import diagnose_capture, require_steps
        from boundby.roofs import cache

        require_steps(capture)
        if self._machine_file is not None:
            machine = cache.read(self._machine_file)
        else:
            with progress_bar("measuring", shown=not self._quiet) as progress:
                machine = observation.machine_of(
                    capture,
                    measured_elsewhere=int(os.environ.get("LOCAL_RANK", "0")) > 0,
                    progress=progress,
                    notice=_say,
                )
        with progress_bar("timing", shown=not self._quiet) as progress:
            timer = observation.timer_of(capture, machine, progress=progress)
            return diagnose_capture(capture, machine, target=self._name, timer=timer)

    def _save(self, diagnosis: Diagnosis, capture: Capture) -> None:
        from boundby import store

        if self._rank == 0 and self._stdout is not None:
            with os.fdopen(self._stdout, "wb") as stdout:
                stdout.write(store.as_json(diagnosis) + b"\n")
        elif self._rank == 0 and self._json_file:
            store.write(diagnosis, Path(self._json_file))
        if self._rank == 0:
            self._write_page(diagnosis)
        if self._out is not None:
            store.write(diagnosis, self._out / "diagnosis.json")
            if capture.trace is not None:
                shutil.copyfile(capture.trace, self._out / "trace.json")


def _set_stdout_aside() -> int:
    """Keep stdout for the JSON alone; what the script prints goes to stderr."""
    kept = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    return kept


def _say(line: str) -> None:
    click.echo(f"boundby: {line}", err=True)


def _mind_threads() -> None:
    """Say what python waits for, when a script that was ended leaves threads running."""
    left = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and not thread.daemon
    ]

    def watch() -> None:
        time.sleep(_PATIENCE_WITH_THREADS_S)
        names = ", ".join(thread.name for thread in left if thread.is_alive())
        if names:
            _say(f"done, but threads of the script are still running ({names}): Ctrl-C ends them")

    if left:
        threading.Thread(target=watch, daemon=True).start()
