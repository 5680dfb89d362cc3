"""boundby prove: apply each fix to the unmodified script, measure it, keep what helped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
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
from boundby.cli.target import target_of
from boundby.model.errors import INTERRUPTED

if TYPE_CHECKING:
    from boundby.model.diagnosis import Diagnosis
    from boundby.prove.patching.patch import SourcePatch

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|min|h)?$")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


class _Duration(click.ParamType[float]):
    """`90s`, `10m`, `1h`; a plain number is seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.match(str(value).strip())
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value} is no duration: write 90s, 10m or 1h", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class _Names(click.ParamType[list[str]]):
    name = "names"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        if isinstance(value, list):
            return value
        return [name.strip() for name in str(value).split(",") if name.strip()]


@script_command("prove")
@click.option(
    "--budget",
    type=_Duration(),
    default="5m",
    show_default=True,
    help="Time limit, including the diagnosis.",
)
@click.option(
    "--only", type=_Names(), default="", metavar="NAME,...", help="Try these faults or fixes."
)
@click.option(
    "--skip",
    type=_Names(),
    default="",
    metavar="NAME,...",
    help="Do not try these faults or fixes.",
)
@click.option(
    "--try",
    "also",
    type=_Names(),
    default="",
    metavar="NAME,...",
    help="Also try these, even without a finding: compile:max-autotune, checkpoints, ... "
    "(`boundby explain` lists all).",
)
@click.option("--all", "everything", is_flag=True, help="Try every fix.")
@step_by_option
@click.option(
    "--diagnosis",
    "diagnosis_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Start from a saved diagnosis of the script.",
)
@machine_option()
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE", help="Your own faults and fixes."
)
@click.option(
    "--keep-logs",
    "logs",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the output of each run.",
)
@output_options(verbose=False)
@click.option(
    "--patch",
    "patch_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the kept fixes as a diff of the script.",
)
@click.option("--scratch", is_flag=True, help="Run in copies of this folder.")
@click.option(
    "--accept-unverified",
    is_flag=True,
    help="Keep a faster fix even if its results could not be compared.",
)
@target_argument
def command(
    budget: float,
    only: list[str],
    skip: list[str],
    also: list[str],
    everything: bool,
    step_by: str,
    diagnosis_file: Path | None,
    machine_file: Path | None,
    plugins: tuple[str, ...],
    logs: Path | None,
    outputs: Outputs,
    patch_file: Path | None,
    scratch: bool,
    accept_unverified: bool,
    target: tuple[str, ...],
) -> int:
    """Prove fixes on an unmodified script: boundby prove [OPTIONS] train.py --lr 3e-4.

    \b
    The script is started once. Fixes are switched on and off between its steps and measured in
    alternation. Those that are faster and compute the same results are combined and written as a
    patch, which is measured in new processes. The script itself is not changed.
    """
    began = time.monotonic()  # before the imports, which take a second on a busy machine
    from boundby.cli.console import progress_bar
    from boundby.model import store
    from boundby.model.diagnosis import Diagnosis
    from boundby.prove.candidates import Choice
    from boundby.prove.experiment import prove_target
    from boundby.prove.request import Request

    # Under torchrun only the first rank works: it starts the script on as many ranks each time.
    if int(os.environ.get("RANK", "0")) > 0:
        return 0
    patch = str(patch_file) if patch_file is not None else None
    outputs.check(patch)
    check_machine(machine_file)
    request = Request(
        target=target_of(target),
        budget_s=budget,
        choice=Choice(only=only, skip=skip, also=also, everything=everything),
        step_by=step_by,
        diagnosis=store.read(diagnosis_file, Diagnosis, "diagnosis") if diagnosis_file else None,
        machine_file=machine_file,
        plugins=plugins,
        logs=logs,
        scratch=scratch,
        accept_unverified=accept_unverified,
        ranks=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    with _interrupted_once() as ignore_interrupts:
        with progress_bar("proving:", shown=not outputs.quiet) as progress:
            result = prove_target(request, progress, progress.print, began=began)
        ignore_interrupts()
        if patch_file is not None and result.patch is not None:
            _write_patch(result.patch, patch_file)
        if not outputs.quiet:
            _report_result(result.diagnosis, patch_file, result.patch)
        outputs.write(result.diagnosis)
    return INTERRUPTED if result.interrupted else 0


@contextlib.contextmanager
def _interrupted_once() -> Iterator[Callable[[], None]]:
    """The first Ctrl-C ends the measurement; later ones are ignored, so that its results are
    written."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def interrupt(*_: object) -> None:
        ignore()
        raise KeyboardInterrupt

    # In the background of a shell it is ignored already.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield ignore
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _report_result(
    diagnosis: Diagnosis, patch_file: Path | None, patch: SourcePatch | None
) -> None:
    from boundby.cli.console import error_console
    from boundby.report.proofs import ProofsReport, wants_time

    console = error_console()
    console.print(ProofsReport(diagnosis))
    for manual in patch.manual if patch is not None else ():
        console.print(f"not in the patch: {manual}")
    if patch_file is not None:
        console.print(_about(patch_file, patch), style="bold")
    elif patch is not None and patch.diff:
        console.print("for a diff of the script: --patch FILE", style="dim")
    if wants_time(diagnosis):
        which = "for inconclusive or skipped fixes" if diagnosis.proofs else "to try fixes"
        console.print(f"{which}: a larger --budget", style="dim")


def _about(path: Path, patch: SourcePatch | None) -> str:
    if patch is None:
        return f"no patch: no fix was kept, and {path} was not written"
    if not patch.diff:
        return f"{path} contains no change, only steps to do by hand"
    folder = "" if patch.root == Path.cwd().resolve() else f" in {patch.root}"
    return f"to apply the changes{folder}: git apply {path}"


def _write_patch(patch: SourcePatch, path: Path) -> None:
    from boundby.model.errors import BoundbyError

    try:
        path.write_bytes(patch.text())
    except OSError as error:
        raise BoundbyError(f"cannot write {path}: {error.strerror}") from None
