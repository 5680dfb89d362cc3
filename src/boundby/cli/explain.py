"""boundby explain: what a finding means, and when not to follow it."""

from __future__ import annotations

import click


@click.command(name="explain")
@click.argument("fault", required=False)
def command(fault: str | None) -> None:
    """What a fault means and when not to follow its remedy; without one, the list of all."""
    from boundby.errors import BoundbyError
    from boundby.remedies import REMEDIES

    if fault is None:
        width = max(len(remedy.fault) for remedy in REMEDIES)
        for remedy in REMEDIES:
            click.echo(f"{remedy.fault:{width}}  {remedy.summary}")
        return
    found = next((remedy for remedy in REMEDIES if remedy.fault == fault), None)
    if found is None:
        known = ", ".join(remedy.fault for remedy in REMEDIES)
        raise BoundbyError(f"no such fault: {fault} (known: {known})")
    click.echo(f"{found.fault} ({found.group})\n\n{found.document.strip()}")
