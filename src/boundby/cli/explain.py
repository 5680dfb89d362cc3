"""boundby explain: the documentation of a fault or of a fix."""

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
    """Explain a fault that `boundby run` reports or a fix that `boundby prove` applies.

    Without a name: list all faults and fixes.
    """
    from boundby.faults import FAULTS
    from boundby.model.errors import BoundbyError

    fixes: dict[Fix, list[Fault]] = {}
    for fault in FAULTS:
        for fix in fault.fixes:
            fixes.setdefault(fix, []).append(fault)
    if name is None:
        _list(FAULTS, fixes)
        return
    for fault in FAULTS:
        if fault.id == name:
            click.echo(f"{fault.id} ({fault.group})\n\n{fault.document.strip()}")
            _fixes(fault)
            return
    for fix, faults in fixes.items():
        if fix.name == name:
            click.echo(_explained(fix, faults))
            return
    near = _near(name, [*(fault.id for fault in FAULTS), *(fix.name for fix in fixes)])
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise BoundbyError(f"no fault and no fix is called {name}: {meant}boundby explain lists them")


def _near(name: str, names: list[str]) -> list[str]:
    """Return the names that contain `name`, otherwise those with a similar spelling."""
    return [candidate for candidate in names if name in candidate] or difflib.get_close_matches(
        name, names
    )


def _list(faults: list[Fault], fixes: dict[Fix, list[Fault]]) -> None:
    width = max(len(fault.id) for fault in faults)
    click.echo("Faults that `boundby run` reports:\n")
    for fault in faults:
        click.echo(f"  {fault.id:{width}}  {fault.summary}")
    width = max(len(fix.name) for fix in fixes)
    click.echo("\nFixes that `boundby prove` applies to these faults, or with --try NAME:\n")
    for fix, fixed in fixes.items():
        words = ", ".join(fault.id for fault in fixed)
        click.echo(f"  {fix.name:{width}}  for {words}")


def _fixes(fault: Fault) -> None:
    click.echo("\nWhat boundby prove applies")
    if not fault.fixes:
        click.echo("    Nothing: this needs a change in the script.")
        return
    width = max(len(fix.name) for fix in fault.fixes)
    for fix in fault.fixes:
        click.echo(f"    {fix.name:{width}}  {fix.change}")


def _explained(fix: Fix, faults: list[Fault]) -> str:
    lines = [f"{fix.name}: a fix that `boundby prove --try {fix.name}` applies", ""]
    lines += ["The change", textwrap.indent(fix.change, "    "), "", "Faults it fixes"]
    lines += [f"    {fault.id}: {fault.summary}" for fault in faults]
    if fix.precision is not None:
        lines += ["", f"It computes in {fix.precision}; `boundby prove` checks the results."]
    if fix.devices == ("cuda",):
        lines += ["", "Only on CUDA devices."]
    if fix.devices == ("cpu",):
        lines += ["", "Only on a CPU."]
    if fix.preparation_s:
        longer = f"{fix.preparation_s:.0f} s"
        lines += ["", f"It takes about {longer} longer to start: choose a larger --budget."]
    return "\n".join(lines)
