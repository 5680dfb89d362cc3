"""Messages for mistakes on the command line, in one line: what is wrong, and what would be
right."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from boundby.cli.target import TargetCommand

# Similarity from which on a correction is suggested: --waarmup and --warmup, but not --bogus and
# --out.
_ALIKE = 0.75


def message_of(error: click.ClickException) -> str:
    """The line for a mistake on the command line."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        return _unknown_option(error.option_name, error.ctx)
    return error.format_message()


def _unknown_option(name: str, ctx: click.Context) -> str:
    command = f"boundby {ctx.info_name}" if ctx.parent else "boundby"
    similar = _nearest(
        name, [name_of_option for option in ctx.command.params for name_of_option in option.opts]
    )
    hint = f" (did you mean {similar}?)" if similar else ""
    line = f"no option {name} for {command}{hint}"
    if isinstance(ctx.command, TargetCommand):
        return f"{line}; write the script's own options after its name: {command} train.py {name}"
    return line if similar else f"{line}; {command} --help lists them"


def unknown_verb(name: str, verbs: list[str]) -> str:
    """The line for an unknown command: often a script, given without a command."""
    if name.endswith(".py") or Path(name).is_file():
        return f"to diagnose a script: boundby run {name}"
    similar = _nearest(name, verbs)
    hint = f"did you mean {similar}?" if similar else "boundby --help lists them"
    return f"no command is called {name}; {hint}"


def _nearest(name: str, known: list[str]) -> str | None:
    begun = [candidate for candidate in known if len(name) > 3 and candidate.startswith(name)]
    alike = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return next(iter(begun + alike), None)
