"""Write the generated parts of docs/plan.md and docs/figures/plan.md.

The table of assumptions in the first comes from plan/assumptions.py (`--check` only compares it).
The scores in the second are written from tables of measurements given as arguments.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from boundby.model import units
from boundby.model.plan import PlanScore
from boundby.plan import assumptions
from boundby.plan.table import predict_file

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "plan.md"
SCORES_PAGE = DOCS / "figures" / "plan.md"


def assumptions_table() -> str:
    """One line for each constant: its value and the comment above it."""
    source = Path(assumptions.__file__).read_text("utf-8")
    lines = source.splitlines()
    rows = ["| constant | value | source, range |", "|---|---|---|"]
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = ast.unparse(target).strip("()")
        if name.startswith("_") or node.value is None:
            continue
        value = ast.unparse(node.value).replace("|", "\\|")
        rows.append(f"| `{name}` | `{value}` | {_comment_above(lines, node.lineno - 1)} |")
    return "\n".join(rows)


def _comment_above(lines: list[str], index: int) -> str:
    """The block of comments above a line; constants of one block share it."""
    while index > 0 and lines[index - 1] and not lines[index - 1].startswith("#"):
        index -= 1
    words: list[str] = []
    while index > 0 and lines[index - 1].startswith("# ") and "----" not in lines[index - 1]:
        index -= 1
        words.insert(0, lines[index].removeprefix("# "))
    return " ".join(words).replace("|", "\\|")


def scores_tables(files: list[str]) -> str:
    """The scores of each table of measurements."""
    parts = []
    for file in files:
        table = predict_file(file)
        parts.append(f"**{Path(file).name}**, {len(table.rows)} rows\n\n{_scores(table.scores)}")
        if table.memory_scores:
            parts.append(f"Memory per chip where it is stated\n\n{_scores(table.memory_scores)}")
    return "\n\n".join(parts)


def _scores(scores: list[PlanScore]) -> str:
    rows = ["| source | rows | mean error | bias | in range | rank correlation |"]
    rows.append("|---|---|---|---|---|---|")
    for one in scores:
        rank = f"{one.rank_correlation:.2f}" if one.rank_correlation is not None else ""
        rows.append(
            f"| {one.name} | {one.rows} | {units.share(one.mean_error)} | {units.share(one.bias)} "
            f"| {units.share(one.coverage)} | {rank} |"
        )
    return "\n".join(rows)


def with_part(page: str, name: str, text: str) -> str:
    """The page with the text between the two marks of a part replaced."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{text}\n{end}{after}"


if __name__ == "__main__":
    current = PAGE.read_text("utf-8")
    written = with_part(current, "assumptions", assumptions_table())
    if "--check" in sys.argv:
        sys.exit(0 if written == current else "docs/plan.md is out of date: make docs")
    PAGE.write_text(written, "utf-8")
    if sys.argv[1:]:
        scores = with_part(SCORES_PAGE.read_text("utf-8"), "scores", scores_tables(sys.argv[1:]))
        SCORES_PAGE.write_text(scores, "utf-8")
