"""Commands that run somebody's script: boundby's options come first, the rest is the script's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from boundby.errors import BoundbyError

if TYPE_CHECKING:
    from boundby.capture.live.execution import Target


class TargetCommand(click.Command):
    """Stops parsing at the script, or behind `-m MODULE`; everything after it is left alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, target = split(args, self._valued())
        if any(option in own for option in ctx.help_option_names):
            return super().parse_args(ctx, own)
        if not target:
            raise click.UsageError(f"give a script to run: boundby {self.name} train.py", ctx)
        if target[0] == "-m" and len(target) < 2:
            raise click.UsageError("-m needs the name of a module", ctx)
        return super().parse_args(ctx, [*own, "--", *target])

    def invoke(self, ctx: click.Context) -> Any:
        """A failure may come of options that stand in the wrong place."""
        try:
            return super().invoke(ctx)
        except BoundbyError as error:
            names = {name for option in self.params for name in option.opts if name[:2] == "--"}
            given = ctx.params.get("target", ())[1:]
            misplaced = [word for word in given if word.partition("=")[0] in names]
            if not misplaced:
                raise
            raise BoundbyError(
                f"{error} ({', '.join(misplaced)} was given to the script: options that are meant "
                "for boundby come before it)",
                exit_code=error.exit_code,
            ) from error

    def _valued(self) -> set[str]:
        return {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }


def split(args: list[str], valued: set[str]) -> tuple[list[str], list[str]]:
    """boundby's own arguments, and the target with all of its own."""
    index = 0
    while index < len(args):
        argument = args[index]
        if argument == "--":
            return args[:index], args[index + 1 :]
        if argument.startswith("-m"):
            # Written together, as python takes it too.
            name = [argument[2:]] if len(argument) > 2 else []
            return args[:index], ["-m", *name, *args[index + 1 :]]
        if not argument.startswith("-") or argument == "-":
            break
        index += 2 if argument in valued else 1
    return args[:index], args[index:]


def target_of(words: tuple[str, ...]) -> Target:
    """The script, or behind `-m` the module, and what is its own behind that."""
    from boundby.capture.live.execution import Target

    is_module = words[0] == "-m"
    name, *args = words[1:] if is_module else words
    return Target(name=name, args=args, is_module=is_module)
