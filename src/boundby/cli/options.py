"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from boundby.cli.outputs import Outputs
from boundby.cli.target import TargetCommand

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

step_by_option = click.option(
    "--step-by",
    type=click.Choice(["auto", "optimizer", "forward"]),
    default="auto",
    help="What ends a step; default: detected.",
)
target_argument = click.argument(
    "target", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED
)


def script_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that runs a script: arguments after the script belong to it."""
    return click.command(
        name=name, cls=TargetCommand, context_settings={"allow_interspersed_args": False}
    )


def machine_option(default: str = "") -> Decorator:
    """--machine; `default` says what is used without it."""
    return click.option(
        "--machine",
        "machine_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Use roofs saved with `boundby machine --json`"
        + (f"; default: {default}." if default else "."),
    )


def output_options(*, csv: bool = False, verbose: bool = True) -> Decorator:
    """The options of a command that ends with a diagnosis; it gets them as `outputs`."""
    options = [
        click.option("--html", "html_file", metavar="FILE", help="Write the page, one file."),
        click.option("--perfetto", "perfetto_file", metavar="FILE", help="Write a Perfetto trace."),
        click.option("--open", "open_page", is_flag=True, help="Open the page in a browser."),
        click.option(
            "--json", "json_file", metavar="FILE", help="Write the diagnosis (- for stdout)."
        ),
        click.option("--quiet", is_flag=True, help="Print no report."),
    ]
    if csv:
        options.append(
            click.option(
                "--csv", "csv_folder", metavar="DIR", help="Write all tables as CSV files."
            )
        )
    if verbose:
        options.append(click.option("--verbose", is_flag=True, help="Print the whole report."))
    names = [field.name for field in dataclasses.fields(Outputs)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_outputs(**values: Any) -> Any:
            outputs = Outputs(**{name: values.pop(name) for name in names if name in values})
            return command(outputs=outputs, **values)

        wrapped: Callable[..., Any] = with_outputs
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate
