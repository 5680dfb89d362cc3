"""boundby compare: what became slower from one diagnosis to another."""

from __future__ import annotations

import re
from pathlib import Path

import click

from boundby.model.errors import CANNOT_MEASURE

# Different from the codes of bad input and failed measurements, so that CI can distinguish them.
SLOWER = 1


def parse_share(text: str) -> float:
    """Parse 5%, 0.5% or 0.05 as a share of one."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%?)", text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a share: write 5% or 0.05")
    return float(match[1]) / (100 if match[2] else 1)


@click.command(name="compare")
@click.option("--fail-over", metavar="SHARE", help="Exit with 1 if B is slower than A by more: 5%.")
@click.option("--html", "html_file", metavar="FILE", help="Write the comparison as a page.")
@click.option("--json", "json_file", metavar="FILE", help="Write the comparison (- for stdout).")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--quiet", is_flag=True, help="Print no report.")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
def command(
    fail_over: str | None,
    html_file: str | None,
    json_file: str | None,
    open_page: bool,
    quiet: bool,
    before: Path,
    after: Path,
) -> int:
    """Compare two saved diagnoses or traces: what became slower from A to B."""
    from boundby.analysis.comparison import compare
    from boundby.cli.console import error_console, output_console
    from boundby.cli.outputs import announce_page, temporary_page_path, write_json
    from boundby.cli.saved import read_diagnosis
    from boundby.model import store
    from boundby.report.comparison import ComparisonReport
    from boundby.report.page import comparison_page

    tolerance = parse_share(fail_over) if fail_over is not None else None
    comparison = compare(
        read_diagnosis(before), read_diagnosis(after), names=(str(before), str(after))
    )
    write_json(comparison, json_file)
    if html_file or open_page:
        path = Path(html_file) if html_file else temporary_page_path()
        store.write_bytes(comparison_page(comparison).encode(), path)
        announce_page(path, open_page=open_page, quiet=quiet)
    if not quiet:
        console = error_console() if json_file == "-" else output_console()
        console.print(ComparisonReport(comparison))
    if tolerance is not None and comparison.refused:
        click.echo(f"boundby: not judged: {comparison.refused}", err=True)
        return CANNOT_MEASURE
    if tolerance is None or comparison.slowdown <= tolerance:
        return 0
    click.echo(
        f"boundby: {comparison.slowdown:.1%} slower, more than the {tolerance:.1%} allowed",
        err=True,
    )
    return SLOWER
