"""boundby lab: performance laws, predicted and measured on this machine."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import click


@click.command(name="lab")
@click.argument("names", metavar="[EXPERIMENT]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="List the experiments and their claims.")
@click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; default: the accelerator.")
@click.option("--quick", is_flag=True, help="Smaller sizes, fewer repeats, larger error.")
@click.option("--json", "json_file", metavar="FILE", help="Also write it as JSON (- for stdout).")
@click.option(
    "--html",
    "html_file",
    metavar="[FILE]",
    is_flag=False,
    flag_value="boundby-lab.html",
    help="Also write a page with the plots (boundby-lab.html).",
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
def command(
    names: tuple[str, ...],
    listed: bool,
    device: str | None,
    quick: bool,
    json_file: str | None,
    html_file: str | None,
    quiet: bool,
) -> None:
    """Run experiments on performance laws: all of them, or those named.

    Each predicts from this machine's roofs, then measures, and says whether the law holds. If not,
    the reason is printed if one was found. Ctrl-C keeps the results so far.
    """
    from boundby import hardware as roofs
    from boundby.cli.console import error_console, output_console, progress_bar
    from boundby.cli.outputs import check_writable
    from boundby.lab.session import Session, choose
    from boundby.model import store
    from boundby.report.lab import ExperimentList, LabTable
    from boundby.report.lab_page import page

    chosen = choose(names)
    if listed:
        output_console().print(ExperimentList([(e.name, e.title, e.claim) for e in chosen]))
        return
    errors = error_console()
    check_writable(html_file, json_file)
    with progress_bar("roofs:", shown=not quiet) as progress:
        machine = roofs.obtain(
            device,
            quick=quick,
            progress=progress,
            notice=lambda line: errors.print(f"boundby: {line}", highlight=False, markup=False),
        )
    session = Session(machine, device or machine.kind, chosen, quick=quick)
    interrupted = False
    with progress_bar("experiment:", shown=not quiet) as progress, _termination_interrupts():
        try:
            session.run(progress)
        except KeyboardInterrupt:
            interrupted = True
    report = session.report(interrupted=interrupted)
    if json_file == "-":
        click.echo(store.as_json(report))
    elif json_file:
        store.write(report, Path(json_file))
    if html_file:
        store.write_text(page(report), Path(html_file))
        if not quiet:
            errors.print(f"boundby: the page is {html_file}", highlight=False, markup=False)
    if not quiet:
        (errors if json_file == "-" else output_console()).print(LabTable(report))
    _end(interrupted, done=len(report.results), chosen=len(chosen))


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Handle SIGTERM, for example from a time limit, like Ctrl-C: end with the results so far."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(interrupted: bool, *, done: int, chosen: int) -> None:
    from boundby.model.errors import INTERRUPTED, BoundbyError

    if interrupted:
        raise BoundbyError(
            f"interrupted: {done} of {chosen} experiments are done and kept",
            exit_code=INTERRUPTED,
        )
