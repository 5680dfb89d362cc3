"""Write docs/assumptions.md from boundby/model/assumptions (`--check` only compares it)."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from boundby.model import assumptions
from boundby.model.assumptions.assumption import Assumption

PAGE = Path(__file__).resolve().parents[1] / "docs" / "assumptions.md"
HEAD = """# Assumptions

A diagnosis rests on what was observed in the step, what was measured on the machine, definitions,
and the numbers on this page: assumed, counted, or seen on machines other than yours. Each has its
plausible range and its source. "Assumed" means that nothing was measured. Predicted savings have
ranges because of them; `boundby prove` measures instead.

Numbers of `boundby plan` are in [plan.md](plan.md), datasheet figures in `hardware/chips.toml`.
Generated from `src/boundby/model/assumptions/` by `make docs`.
"""


def page() -> str:
    """One table for each module of the package."""
    parts = [HEAD]
    for module in pkgutil.iter_modules(assumptions.__path__):
        found = importlib.import_module(f"{assumptions.__name__}.{module.name}")
        rows = {name: one for name, one in vars(found).items() if isinstance(one, Assumption)}
        if not rows:
            continue
        heading = " ".join((found.__doc__ or "").split()).removesuffix(".")
        parts.append(f"\n## {heading}\n")
        parts.append(
            "| name | value | range | unit | meaning | source |\n|---|---|---|---|---|---|"
        )
        parts += [
            f"| `{name}` | {one.value:g} | {one.low:g} to {one.high:g} | {one.unit} "
            f"| {one.meaning} | {one.source} |"
            for name, one in rows.items()
        ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            sys.exit("docs/assumptions.md is out of date: run `make docs`")
    else:
        PAGE.write_text(text, "utf-8")
