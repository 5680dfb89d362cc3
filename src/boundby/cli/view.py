"""boundby view: show a saved diagnosis again, in any form."""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli.outputs import page_options, report_options


@click.command(name="view")
@page_options
@click.option("--csv", "csv_folder", metavar="DIR", help="Write all tables as CSV files.")
@click.option("--json", "json_file", metavar="FILE", help="Write the diagnosis (- for stdout).")
@report_options
@click.argument("file", type=click.Path(path_type=Path))
def command(
    html_file: str | None,
    perfetto_file: str | None,
    open_page: bool,
    csv_folder: str | None,
    json_file: str | None,
    quiet: bool,
    verbose: bool,
    file: Path,
) -> None:
    """Show a saved diagnosis, or analyse again a run kept with --out."""
    from boundby.cli.console import error_console, output_console
    from boundby.cli.outputs import write_csv, write_json, write_page
    from boundby.cli.saved import read_diagnosis
    from boundby.report.terminal import DiagnosisReport

    diagnosis = read_diagnosis(file)
    write_json(diagnosis, json_file)
    write_csv(diagnosis, csv_folder)
    write_page(diagnosis, html_file, perfetto_file, open_page=open_page, quiet=quiet)
    if not quiet:
        console = error_console() if json_file == "-" else output_console()
        console.print(DiagnosisReport(diagnosis, verbose=verbose))
