"""boundby machine: measure and show the roofs that all other commands use."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="machine")
@click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; default: the accelerator.")
@click.option("--remeasure", is_flag=True, help="Measure again even if one is saved.")
@click.option("--quick", is_flag=True, help="Under ten seconds, larger error.")
@click.option("--json", "json_file", metavar="FILE", help="Also write it as JSON (- for stdout).")
@click.option("--quiet", is_flag=True, help="Measure and save, print nothing.")
def command(
    device: str | None, remeasure: bool, quick: bool, json_file: str | None, quiet: bool
) -> None:
    """Measure and show this machine's roofs.

    What the device can do at most: matrix and vector FLOP/s, memory bandwidth, the cost of issuing
    work. The result is saved, and used by every other command.
    """
    from boundby import hardware as roofs
    from boundby.cli.console import error_console, output_console, progress_bar
    from boundby.model import store
    from boundby.report.machine import MachineReport

    errors = error_console()
    with progress_bar("measuring", shown=not quiet) as progress:
        machine = roofs.obtain(
            device,
            remeasure=remeasure,
            quick=quick,
            progress=progress,
            notice=lambda line: errors.print(f"boundby: {line}", highlight=False, markup=False),
        )
    if json_file == "-":
        click.echo(store.as_json(machine))
    elif json_file:
        store.write(machine, Path(json_file))
    if not quiet:
        (errors if json_file == "-" else output_console()).print(MachineReport(machine))
