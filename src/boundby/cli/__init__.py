"""The command line: one file per command, and the only place that prints or exits.

A command's file is imported only when that command is called: `boundby --help` loads neither torch
nor numpy.
"""

from __future__ import annotations

import importlib
import sys

import click

from boundby import __version__
from boundby.cli.mistakes import message_of, unknown_verb
from boundby.cli.own_streams import OwnStreams
from boundby.model.errors import INTERRUPTED, OWN_FAILURE, BoundbyError
from boundby.model.units import printable

# Command -> what it does. The file cli/COMMAND.py holds the command of the same name.
_VERBS = {
    "run": "Diagnose an unmodified script: run train.py --lr 3e-4.",
    "prove": "Apply fixes to an unmodified script, measure them, write the patch.",
    "trace": "Diagnose existing profiler traces, one rank or many.",
    "view": "Show a saved diagnosis: terminal, page, Perfetto.",
    "compare": "Compare two diagnoses: what became slower; for CI.",
    "plan": "Predict a step on hardware you do not have.",
    "lab": "Predict and measure performance laws on this machine.",
    "explain": "Explain a finding and when not to follow it.",
    "machine": "Measure and show this machine's roofs.",
}


class _Verbs(click.Group):
    """A group that knows its commands by name and loads each when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"boundby.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            raise click.UsageError(unknown_verb(args[0], list(_VERBS)), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="boundby")
def boundby() -> None:
    """What your deep-learning step is bound by, why, and what would fix it."""


def main() -> None:
    """Run a command; every failure is one line and an exit code."""
    streams = OwnStreams()
    try:
        code = boundby.main(standalone_mode=False)
    except BrokenPipeError:
        code = 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a failure of boundby's own
        with streams.used():
            code = _report(error)
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception | KeyboardInterrupt) -> int:
    if isinstance(error, BoundbyError):
        return _fail(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return _fail(message_of(error), error.exit_code)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return _fail("interrupted: nothing was changed", INTERRUPTED)
    return _fail_with_traceback(error)


def _fail_with_traceback(error: Exception) -> int:
    from boundby.capture.process.guard import failure_of

    failure = failure_of("internal error", [error])
    path = failure.keep(None)
    where = f"; its traceback, for a bug report: {path}" if path else ""
    return _fail(failure.line + where, OWN_FAILURE)


def _fail(message: str, exit_code: int) -> int:
    from boundby.model.run_failure import RunFailure, is_written

    if not is_written(RunFailure(reason=message)):
        click.echo(printable(f"boundby: {message}"), err=True)
    return exit_code
