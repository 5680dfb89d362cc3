"""boundby run: diagnose an unmodified script."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli.inputs import check_machine
from boundby.cli.options import (
    machine_option,
    output_options,
    script_command,
    step_by_option,
    target_argument,
)
from boundby.cli.outputs import Outputs
from boundby.cli.results import DiagnosisOptions, Results, attend_child
from boundby.cli.target import target_of

if TYPE_CHECKING:
    from boundby.capture.process.execution import Ending

# Ranks of a job must take the same number of steps, or the slower ones wait forever.
_WARMUP_OF_JOBS = 8


@script_command("run")
@click.option("--warmup", type=click.IntRange(1), help="Warm-up steps; default: until stable.")
@click.option(
    "--steps", type=click.IntRange(1), help="Clean steps; default: 10, more if they vary."
)
@click.option(
    "--profiled", type=click.IntRange(0), default=3, show_default=True, help="Profiled steps."
)
@step_by_option
@click.option(
    "--kind",
    metavar="KIND",
    help="Diagnose steps of this kind: forward (evaluation, prefill, ...), train, or as the report"
    " names them; default: the kind with most time.",
)
@click.option("--continue", "keep_going", is_flag=True, help="Let the script run to its own end.")
@machine_option()
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep the observation, the diagnosis and the raw trace; `boundby view DIR` shows them.",
)
@output_options()
@target_argument
def command(
    warmup: int | None,
    steps: int | None,
    profiled: int,
    step_by: str,
    kind: str | None,
    keep_going: bool,
    machine_file: Path | None,
    out: Path | None,
    outputs: Outputs,
    target: tuple[str, ...],
) -> int:
    """Diagnose an unmodified script: boundby run [OPTIONS] train.py --lr 3e-4.

    \b
    A module is run with -m: boundby run [OPTIONS] -m pkg.train --its --options
    """
    from boundby.capture.process.plan import plan_of
    from boundby.capture.process.script import run_script
    from boundby.cli.run_progress import RunProgress

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and warmup is None:
        warmup = _WARMUP_OF_JOBS
    script = target_of(target)
    outputs.check(folder=out)
    check_machine(machine_file)
    wanted = DiagnosisOptions(
        name=script.name,
        outputs=outputs.absolute(),
        out=out.absolute() if out is not None else None,
        machine_file=machine_file.absolute() if machine_file is not None else None,
    )
    results = Results(wanted, rank=rank, world=world)
    process = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix="boundby-"))
    try:
        ending = run_script(
            script,
            plan=plan_of(
                warmup=warmup, steps=steps, profiled=profiled, in_step=world > 1, kind=kind
            ),
            step_by=step_by,  # type: ignore[arg-type]
            folder=folder,
            keep_going=keep_going,
            on_refusal=results.refused,
            on_failure=results.failed,
            on_replacement=results.replaced,
            on_exit=partial(_exits, results, folder),
            on_window=RunProgress(shown=not outputs.quiet and rank == 0).opened,
            attend=partial(
                attend_child,
                wanted=wanted,
                folder=folder,
                plan=plan_of(
                    warmup=warmup or _WARMUP_OF_JOBS, steps=steps, profiled=profiled, in_step=True
                ),
                step_by="optimizer" if step_by == "auto" else step_by,  # type: ignore[arg-type]
                keep_going=keep_going,
            ),
        )
        if not ending.forked:
            results.ended(ending, folder)
    finally:
        # A process that the script forked also returns here.
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)
    return ending.exit_code


def _exits(results: Results, folder: Path, ending: Ending) -> None:
    """Show the results of a script that ends its process at once."""
    try:
        results.exits(ending, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
