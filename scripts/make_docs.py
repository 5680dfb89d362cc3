"""Writes docs/faults.md from the remedies; `--check` fails when it is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

from boundby.faults import FAULTS, HEADINGS, Fault

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faults.md"


def section(remedy: Fault) -> str:
    """One fault: its docstring with the headings marked."""
    lines = [f"## {remedy.fault}", "", f"*{remedy.group}* · {remedy.summary}", ""]
    lines += [
        f"**{line}**" if line in HEADINGS else line.strip()
        for line in remedy.document.strip().splitlines()[2:]
    ]
    if remedy.treatments:
        names = ", ".join(f"`{one.name}`" for one in remedy.treatments)
        lines += ["", "**What `boundby prove` applies**", names]
    return "\n".join(lines).strip() + "\n"


def page() -> str:
    head = ["# Faults and their remedies\n", "Made by `make docs` from `boundby explain`.\n"]
    return "\n".join([*head, *map(section, FAULTS)])


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else "docs/faults.md is out of date: make docs")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
