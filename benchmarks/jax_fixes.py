"""What boundby predicts for repairs of JAX programs, beside what they are measured to save.

    python benchmarks/jax_fixes.py                          # all cases, on a CPU or a GPU
    python benchmarks/jax_fixes.py mlp/unjitted gpt/remat   # some
    python benchmarks/jax_tables.py                         # docs/figures/jax.md

On an H200, twice 400 s, from a copy of the tree (rows in $OUT; the second time with --skip and the
first rows):

    python benchmarks/jax_fixes.py --scale 8 --machine roofs.json --seconds 120 --budget 330 \
        --json "$OUT/jax_fixes.jsonl"

Each case of `jax_cases.py` is diagnosed by `boundby run` as it is, and measured with and without
its mistake, in turn, in one other process.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from jax_cases import CASES
from jax_rows import diagnosis, measure, output, parser
from ledger import Row

_CASES = Path(__file__).with_name("jax_cases.py")


def main() -> None:
    given = parser(__doc__, "jax_fixes").parse_args()
    measure(given.names or CASES, given, _row, key="case")


def _row(name: str, options: argparse.Namespace) -> Row:
    row = {"fault": CASES[name].fault, **_predicted(name, options)}
    return row | {"measured": _measured(name, options)}


def _predicted(name: str, options: argparse.Namespace) -> Row:
    found = diagnosis([str(_CASES), name, "--scale", str(options.scale)], options)
    wall = found["step"]["wall_ns"]
    # What concerns the run, or a number of samples, is no share of the step.
    findings = [one for one in found["findings"] if one.get("relative_to", "step") == "step"]
    at = [one["fault"] for one in findings]
    row = {"device": found["machine"]["device"], "wall_ms": wall / 1e6, "found": at[:3]}
    if CASES[name].fault not in at:
        return {**row, "place": None}
    place = at.index(CASES[name].fault)
    saving = findings[place]["saving_ns"]
    saved = {part: saving[part] / wall for part in ("low", "expected", "high")}
    return {**row, "place": place + 1, "saved": saved}


def _measured(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The share of the step that the repair saves, and quartiles."""
    arguments = [str(_CASES), name, "--measure", "--scale", str(options.scale)]
    ratios = json.loads(output(arguments, options).splitlines()[-1])
    return {part: 1 - 1 / max(ratio, 1e-9) for part, ratio in ratios.items()}


if __name__ == "__main__":
    main()
