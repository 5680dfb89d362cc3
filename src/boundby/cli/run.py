"""boundby run: diagnose an unmodified script."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from boundby.cli.target import TargetCommand

if TYPE_CHECKING:
    from boundby.capture.live.recorder import Capture
    from boundby.model.diagnosis import Diagnosis

# Ranks of a job must take the same number of steps, or the slower ones wait for ever.
_WARMUP_OF_JOBS = 10


@click.command(name="run", cls=TargetCommand, context_settings={"allow_interspersed_args": False})
@click.option("--warmup", type=click.IntRange(1), help="Warm-up steps; default: until stable.")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, help="Clean steps.")
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
@click.option("--json", "json_file", metavar="FILE", help="Write the diagnosis (- for stdout).")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep the diagnosis and the raw trace.",
)
@click.option("--quiet", is_flag=True, help="Print no report.")
@click.argument("target", nargs=-1, type=click.UNPROCESSED)
def command(
    warmup: int | None,
    steps: int,
    profiled: int,
    step_by: str,
    keep_going: bool,
    machine_file: Path | None,
    json_file: str | None,
    out: Path | None,
    quiet: bool,
    target: tuple[str, ...],
) -> int:
    """Diagnose an unmodified script: boundby run [OPTIONS] train.py --its --own --options.

    \b
    A module is run with -m: boundby run [OPTIONS] -m pkg.train --its --options
    """
    from boundby.capture.live.script import Target, run_script
    from boundby.capture.live.windows import Plan

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and warmup is None:
        warmup = _WARMUP_OF_JOBS
    is_module = target[0] == "-m"
    name, *args = target[1:] if is_module else target
    results = _Results(
        name,
        json_file=json_file,
        out=out,
        quiet=quiet,
        rank=rank,
        world=world,
        machine_file=machine_file,
    )
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        ending = run_script(
            Target(name=name, args=args, is_module=is_module),
            plan=Plan(warmup=warmup, clean=steps, profiled=profiled),
            step_by=step_by,  # type: ignore[arg-type]
            folder=Path(folder),
            keep_going=keep_going,
            on_refusal=results.refused,
        )
        if ending.error is not None and not isinstance(ending.error, KeyboardInterrupt):
            _show_traceback(ending.error)
        if not ending.refused:
            results.conclude(ending.capture, failed=ending.error is not None)
    return ending.exit_code


class _Results:
    """What becomes of a capture: diagnosed, written, printed."""

    def __init__(
        self,
        name: str,
        *,
        json_file: str | None,
        out: Path | None,
        quiet: bool,
        rank: int,
        world: int,
        machine_file: Path | None,
    ) -> None:
        self._name = name
        self._json_file = json_file
        self._out = out / f"rank{rank}" if out is not None and world > 1 else out
        self._quiet = quiet or rank > 0
        self._machine_file = machine_file
        self._stdout = _set_stdout_aside() if json_file == "-" else None

    def refused(self, capture: Capture) -> None:
        click.echo(
            "boundby: the script was asked to end and goes on; it is not watched any more", err=True
        )
        self.conclude(capture, failed=False)

    def conclude(self, capture: Capture | None, *, failed: bool) -> None:
        """Diagnose what was captured; a script that failed still yields what there is."""
        from boundby.errors import BoundbyError

        if capture is None:
            message = f"{self._name} ended without importing torch: there was nothing to watch"
            raise BoundbyError(message)
        try:
            diagnosis = self._diagnose(capture)
        except BoundbyError as error:
            if failed:
                click.echo(f"boundby: {error}", err=True)
                return
            raise
        self._save(diagnosis, capture)
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
                    progress=progress,
                    notice=lambda line: click.echo(f"boundby: {line}", err=True),
                )
        return diagnose_capture(capture, machine, target=self._name)

    def _save(self, diagnosis: Diagnosis, capture: Capture) -> None:
        from boundby import store

        if self._stdout is not None:
            with os.fdopen(self._stdout, "wb") as stdout:
                stdout.write(store.as_json(diagnosis) + b"\n")
            self._stdout = None
        elif self._json_file:
            store.write(diagnosis, Path(self._json_file))
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


def _show_traceback(error: BaseException) -> None:
    """The script's own traceback, from its first frame on, as python would have shown it."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    sys.stderr.write("".join(traceback.format_exception(error.with_traceback(trace))))


def _is_ours(trace: TracebackType) -> bool:
    path = trace.tb_frame.f_code.co_filename
    return "runpy" in path or str(Path(__file__).parents[1]) in path
