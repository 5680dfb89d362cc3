"""Commands that run a script: boundby's options come first, the rest is the script's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from boundby.capture.process.execution import Target


class TargetCommand(click.Command):
    """Stops parsing at the script, or after `-m MODULE`; everything after it belongs to the
    script."""

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
        """Print which options with names of boundby's come after the script, and are passed to
        it."""
        names = {name for option in self.params for name in option.opts if name[:2] == "--"}
        script, *script_arguments = ctx.params.get("target", ("",))
        misplaced = [name for word in script_arguments if (name := word.partition("=")[0]) in names]
        if misplaced and not ctx.params.get("quiet"):
            of = script_arguments[0] if script == "-m" else script
            verb = "is" if len(misplaced) == 1 else "are"
            click.echo(
                f"boundby: {', '.join(misplaced)} after {of} {verb} passed to it; options of "
                "boundby come before it",
                err=True,
            )
        return super().invoke(ctx)

    def _valued(self) -> set[str]:
        return {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }


def split(args: list[str], valued: set[str]) -> tuple[list[str], list[str]]:
    """boundby's own arguments, and the target with its arguments."""
    index = 0
    while index < len(args):
        argument = args[index]
        if argument == "--":
            return args[:index], args[index + 1 :]
        if argument.startswith("-m"):
            # In one word, as python also accepts it.
            name = [argument[2:]] if len(argument) > 2 else []
            return args[:index], ["-m", *name, *args[index + 1 :]]
        if not argument.startswith("-") or argument == "-":
            break
        index += 2 if argument in valued else 1
    return args[:index], args[index:]


def target_of(words: tuple[str, ...]) -> Target:
    """The script, or the module after `-m`, and its arguments."""
    from boundby.capture.process.execution import Target

    is_module = words[0] == "-m"
    name, *args = words[1:] if is_module else words
    return Target(name=name, args=args, is_module=is_module)
