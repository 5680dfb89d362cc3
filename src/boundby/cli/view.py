"""boundby view: show a saved diagnosis again, in any form."""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli.options import output_options
from boundby.cli.outputs import Outputs


@click.command(name="view")
@output_options(csv=True)
@click.argument("file", type=click.Path(path_type=Path))
def command(outputs: Outputs, file: Path) -> None:
    """Show a saved diagnosis, or analyse again a run kept with --out."""
    from boundby.cli.saved import read_diagnosis

    diagnosis = read_diagnosis(file)
    outputs.write(diagnosis)
    outputs.show(diagnosis)
