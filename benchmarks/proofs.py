"""What `boundby prove` reaches on real scripts, beside the best versions by hand.

    python benchmarks/proofs.py run bert --budget 240s    # prove, on the untouched script
    python benchmarks/proofs.py hand bert                 # beside the best by hand, in turn
    python benchmarks/proofs.py table                     # writes docs/figures/proofs.md

One line of the ledger is one of these runs; the newest of each name, kind and device counts.
`no_change.py` tries fixes without effect.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ledger import ROOT
from proofs_by_hand import hand
from proofs_table import LEDGER, table
from provable import ON_GPU, SCRIPTS


def run(names: list[str], budget: str, keep: Path | None) -> None:
    for name in names:
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(parents=True, exist_ok=True)
            saved = (folder / f"{name}.json").resolve()
            saved.unlink(missing_ok=True)
            options = ["--budget", budget, "--json", str(saved)]
            report = folder / f"{name}.txt"
            with report.open("w") as file:
                subprocess.run(
                    [sys.executable, "-m", "boundby", "prove", *options, *SCRIPTS[name][0]],
                    cwd=ROOT,
                    stdout=subprocess.DEVNULL,
                    stderr=file,
                    check=False,
                )
            print(report.read_text(), flush=True)
            if not saved.exists():
                continue
            diagnosis = json.loads(saved.read_text())
        LEDGER.append(
            {
                "kind": "prove",
                "name": name,
                "device": diagnosis["machine"]["device"],
                "seconds": time.monotonic() - began,
                "wall_ms": diagnosis["step"]["wall_ns"] / 1e6,
                "findings": [
                    [one["fault"], one["saving_ns"]["expected"] / 1e6]
                    for one in diagnosis["findings"]
                ],
                "proofs": [summary(proof) for proof in diagnosis["proofs"]],
            }
        )


def summary(proof: dict[str, Any]) -> dict[str, Any]:
    return {
        "faults": proof["faults"],
        "fixes": proof["fixes"],
        "treatment": proof["treatment"],
        "before_ms": [ns / 1e6 for ns in proof["before_ns"]],
        "after_ms": [ns / 1e6 for ns in proof["after_ns"]],
        "speedup": proof["speedup"],
        "predicted": proof["predicted"],
        "peak_bytes": proof["peak_bytes"],
        "outcome": proof["outcome"],
        "why": proof["why"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["run", "hand", "table"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--budget", default="240s")
    parser.add_argument("--keep", type=Path, help="keep reports and diagnoses in this folder")
    args = parser.parse_args()
    if args.verb == "table":
        table()
    elif args.verb == "run":
        run(args.names or ON_GPU, args.budget, args.keep)
    else:
        hand(args.names or ON_GPU)


if __name__ == "__main__":
    main()
