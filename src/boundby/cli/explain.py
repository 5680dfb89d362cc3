"""boundby explain: what a finding means, and when not to follow it."""

from __future__ import annotations

import difflib
import textwrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from boundby.faults import Fault, Fix


@click.command(name="explain")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """What a fault means and when not to follow its remedy, or what a fix of `boundby prove` does.

    Without a name, the list of all.
    """
    from boundby.faults import FAULTS
    from boundby.model.errors import BoundbyError

    fixes: dict[Fix, list[Fault]] = {}
    for remedy in FAULTS:
        for treatment in remedy.treatments:
            fixes.setdefault(treatment, []).append(remedy)
    if name is None:
        _list(FAULTS, fixes)
        return
    for remedy in FAULTS:
        if remedy.fault == name:
            click.echo(f"{remedy.fault} ({remedy.group})\n\n{remedy.document.strip()}")
            _fixes(remedy)
            return
    for treatment, mends in fixes.items():
        if treatment.name == name:
            click.echo(_explained(treatment, mends))
            return
    near = _near(name, [*(remedy.fault for remedy in FAULTS), *(fix.name for fix in fixes)])
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise BoundbyError(f"no fault and no fix is called {name}: {meant}boundby explain lists them")


def _near(name: str, names: list[str]) -> list[str]:
    """The names that it is a part of; without any, those that are spelled like it."""
    return [known for known in names if name in known] or difflib.get_close_matches(name, names)


def _list(faults: list[Fault], fixes: dict[Fix, list[Fault]]) -> None:
    width = max(len(remedy.fault) for remedy in faults)
    click.echo("Faults, as `boundby run` finds them:\n")
    for remedy in faults:
        click.echo(f"  {remedy.fault:{width}}  {remedy.summary}")
    width = max(len(treatment.name) for treatment in fixes)
    click.echo("\nFixes, as `boundby prove` applies them to what is found, or to --try NAME:\n")
    for treatment, mends in fixes.items():
        words = ", ".join(remedy.fault for remedy in mends)
        click.echo(f"  {treatment.name:{width}}  for {words}")


def _fixes(remedy: Fault) -> None:
    click.echo("\nWhat boundby prove applies")
    if not remedy.treatments:
        click.echo("    Nothing: this cannot be mended from outside of the script.")
        return
    width = max(len(treatment.name) for treatment in remedy.treatments)
    for treatment in remedy.treatments:
        click.echo(f"    {treatment.name:{width}}  {treatment.change}")


def _explained(treatment: Fix, mends: list[Fault]) -> str:
    lines = [f"{treatment.name}, a fix that `boundby prove --try {treatment.name}` applies", ""]
    lines += ["To get the same, write", textwrap.indent(treatment.change, "    "), "", "It mends"]
    lines += [f"    {remedy.fault}: {remedy.summary}" for remedy in mends]
    if treatment.precision is not None:
        lines += ["", f"It computes in {treatment.precision}: prove checks what that changes."]
    if treatment.devices == ("cuda",):
        lines += ["", "On a CUDA device only."]
    if treatment.devices == ("cpu",):
        lines += ["", "On a CPU only."]
    if treatment.preparation_s:
        about = f"{treatment.preparation_s:.0f} s"
        lines += ["", f"It takes about {about} longer to start: give --budget for several."]
    return "\n".join(lines)
