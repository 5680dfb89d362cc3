"""What `boundby prove` reaches on real scripts, beside the best that is made of them by hand.

    python benchmarks/proofs.py run bert --budget 240s    # prove, on the untouched script
    python benchmarks/proofs.py hand bert                 # beside the best by hand, in turn
    python benchmarks/proofs.py aa small_mlp --budget 45s # a change of nothing, twenty times
    python benchmarks/proofs.py table                     # docs/proofs.md, from the ledger

One line of the ledger is one of these runs; the newest of each name, kind and device counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ledger import ROOT, Ledger, Row, device

from boundby.capture.live.execution import Target
from boundby.trials import process, speedup
from boundby.trials.worker import treatment

LEDGER = Ledger("proofs", key=("kind", "name", "device"))
DOCUMENT = ROOT / "docs" / "proofs.md"
WORKLOADS = "benchmarks/workloads.py"
GRAPHED = ["--compile", "--mode", "reduce-overhead"]
SDPA = ["--attention", "sdpa"]
# Name -> the script, and the flags of what a person would try with the same fixes.
SCRIPTS: dict[str, tuple[list[str], list[list[str]]]] = {
    "bert": (
        [WORKLOADS, "bert"],
        [["--fused", *SDPA, *GRAPHED], ["--fused", *GRAPHED], ["--fused", *SDPA, "--graphs"]],
    ),
    "gpt2": (
        [WORKLOADS, "gpt2"],
        [["--fused", *SDPA, *GRAPHED], ["--fused", *SDPA, "--compile", "--graphs"]],
    ),
    "vit": ([WORKLOADS, "vit"], [["--fused", *GRAPHED], ["--fused", "--compile", "--graphs"]]),
    "resnet50": (
        [WORKLOADS, "resnet50"],
        [["--fused", "--channels-last", *GRAPHED], ["--fused", "--channels-last", "--graphs"]],
    ),
    "llama-decode": (
        [WORKLOADS, "llama-decode", "--steps", "400"],
        [[*SDPA, "--compile"], ["--compile"], SDPA],
    ),
    "slow_mlp": (
        ["examples/slow_mlp.py"],
        [["--fused", "--tf32"], ["--fused", "--tf32", "--compile"], ["--fused", "--autocast"]],
    ),
    "char_gpt": (["examples/char_gpt.py"], []),
    "small_mlp": (["examples/slow_mlp.py", "--layers", "8", "--steps", "2000"], []),
    "image_classifier": (["examples/image_classifier.py"], []),
}
ON_GPU = ["bert", "gpt2", "vit", "resnet50", "llama-decode", "slow_mlp"]
ROUNDS = 2


def run(names: list[str], budget: str) -> None:
    for name in names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "proof.json"
            options = ["--budget", budget, "--json", str(saved)]
            done = subprocess.run(
                [sys.executable, "-m", "boundby", "prove", *options, *SCRIPTS[name][0]],
                cwd=ROOT,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            print(done.stderr, flush=True)
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


def against_itself(names: list[str], budget: str, tries: int) -> None:
    """A against A: how often a change of nothing seems to be a gain."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            diagnosis = Path(folder) / "diagnosis.json"
            boundby("run", "--quiet", "--json", str(diagnosis), *SCRIPTS[name][0])
            options = ["--plugin", "benchmarks.no_change", "--only", "no-change"]
            options += ["--quiet", "--diagnosis", str(diagnosis), "--budget", budget]
            found = []
            for attempt in range(tries):
                saved = Path(folder) / f"{attempt}.json"
                boundby("prove", *options, "--json", str(saved), *SCRIPTS[name][0])
                (proof,) = json.loads(saved.read_text())["proofs"]
                found.append(summary(proof))
                runs = f"{len(proof['before_ns'])}+{len(proof['after_ns'])} runs"
                words = ratio(proof["speedup"]) if proof["speedup"] else proof["why"]
                print(f"{name} {attempt + 1}: {proof['outcome']}, {words}, {runs}", flush=True)
        LEDGER.append(
            {
                "kind": "aa",
                "name": name,
                "device": device(),
                "budget": budget,
                "tries": tries,
                "kept": sum(proof["outcome"] == "kept" for proof in found),
                "compared": sum(proof["speedup"] is not None for proof in found),
                "proofs": found,
            }
        )


def boundby(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "boundby", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


def summary(proof: dict[str, Any]) -> dict[str, Any]:
    return {
        "faults": proof["faults"],
        "treatment": proof["treatment"],
        "before_ms": [ns / 1e6 for ns in proof["before_ns"]],
        "after_ms": [ns / 1e6 for ns in proof["after_ns"]],
        "speedup": proof["speedup"],
        "predicted": proof["predicted"],
        "peak_bytes": proof["peak_bytes"],
        "outcome": proof["outcome"],
        "why": proof["why"],
    }


def hand(names: list[str]) -> None:
    """The best of `prove` and the best by hand, in turn, each in fresh processes."""
    for name in names:
        proved = LEDGER.newest().get(("prove", name, device()))
        if proved is None:
            print(f"{name}: prove it first")
            continue
        final = best(proved)
        script, variants = SCRIPTS[name]
        keys = [] if final is None else keys_of(final)
        by_hand = "benchmarks/slow_mlp_by_hand.py" if name == "slow_mlp" else script[0]
        screened = {}
        for flags in variants:
            steps = timed([by_hand, *script[1:], *flags], [])
            if steps:
                screened[" ".join(flags)] = steps
            print(name, flags, f"{statistics.median(steps) / 1e6:.2f} ms" if steps else "failed")
        if not screened:
            continue
        chosen = min(screened, key=lambda flags: statistics.median(screened[flags]))
        ours, theirs = [], [screened[chosen]]
        for turn in range(ROUNDS):
            ours.append(timed(script, keys))
            if turn:
                theirs.append(timed([by_hand, *script[1:], *chosen.split()], []))
        found = speedup.estimate(theirs, ours, speedup.scatter([ours, theirs]))
        LEDGER.append(
            {
                "kind": "hand",
                "name": name,
                "device": device(),
                "prove": keys,
                "hand": chosen,
                "prove_ms": [statistics.median(one) / 1e6 for one in ours],
                "hand_ms": [statistics.median(one) / 1e6 for one in theirs],
                "screened_ms": {k: statistics.median(v) / 1e6 for k, v in screened.items()},
                "speed_of_hand": [found.low, found.median, found.high],
            }
        )


def timed(command: list[str], keys: list[str]) -> list[float]:
    """Clean steps of a script in a fresh process, with treatments applied from outside."""
    name, *args = command
    environment = {k: v for key in keys for k, v in treatment(key).environment.items()}
    setting = process.Setting(target=Target(name=name, args=args, is_module=False))
    wanted = process.Wanted(arm=tuple(keys), seed=1, environment=environment, limit_s=400)
    with tempfile.TemporaryDirectory() as folder:
        observed = process.observe(setting, wanted, folder=Path(folder), cwd=ROOT)
        if observed.problem:
            print(command, keys, observed.problem)
    return observed.samples_ns


def best(row: dict[str, Any]) -> dict[str, Any] | None:
    kept = [one for one in row["proofs"] if one["outcome"] == "kept"]
    return max(
        kept, key=lambda one: (len(one["treatment"].split(" + ")), one["speedup"]["median"]),
        default=None,
    )  # fmt: skip


def keys_of(proof: dict[str, Any]) -> list[str]:
    """A combination's treatments by key: each name belongs to one of its faults."""
    keys = []
    for name in proof["treatment"].split(" + "):
        from boundby.program import TREATMENTS

        fault = next(f for f in proof["faults"] if any(t.name == name for t in TREATMENTS[f]))
        keys.append(f"{fault}/{name}")
    return keys


def table() -> None:
    rows = LEDGER.newest()
    parts = [
        "# Proofs\n",
        "Made by `python benchmarks/proofs.py run NAME`, `... hand NAME` and `... table`: scripts",
        "untouched, every fix applied from outside in its own processes, in turn with the script",
        "as it is. Speed-ups with their 95% intervals; predicted from one diagnosis before.\n",
    ]
    for where in sorted({where for _, _, where in rows}):
        parts += [f"## {where}\n", *summaries(rows, where), "", *changes_of_nothing(rows, where)]
        for (kind, name, there), row in rows.items():
            if kind == "prove" and there == where:
                parts += [*details(name, row), ""]
    DOCUMENT.write_text("\n".join(parts) + "\n")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


def changes_of_nothing(rows: dict[tuple[Any, ...], Row], where: str) -> list[str]:
    lines = []
    for (kind, name, there), row in rows.items():
        if kind == "aa" and there == where:
            medians = [one["speedup"]["median"] for one in row["proofs"] if one["speedup"]]
            lines.append(
                f"A change of nothing to {name}, {row['tries']} times with a budget of "
                f"{row['budget']}: no gain was seen {row['tries'] - row['kept']} times; measured "
                f"from {min(medians):.2f}x to {max(medians):.2f}x.\n"
            )
    return lines


def summaries(rows: dict[tuple[Any, ...], Row], where: str) -> list[str]:
    lines = [
        "| script | before ms | after ms | speed-up | kept | best by hand ms | of its speed |",
        "|---|---|---|---|---|---|---|",
    ]
    for (kind, name, there), row in rows.items():
        if kind != "prove" or there != where:
            continue
        final, by_hand = best(row), rows.get(("hand", name, where))
        if final is None:
            lines.append(f"| {name} | {row['wall_ms']:.1f} | | 1 | nothing held | | |")
            continue
        compared = "| | |"
        if by_hand is not None:
            low, middle, high = by_hand["speed_of_hand"]
            median = statistics.median(by_hand["hand_ms"])
            compared = f"| {median:.2f} | {middle:.0%} ({low:.0%} to {high:.0%}) |"
        lines.append(
            f"| {name} | {statistics.median(final['before_ms']):.2f} "
            f"| {statistics.median(final['after_ms']):.2f} | {ratio(final['speedup'])} "
            f"| {final['treatment']} {compared}"
        )
    return lines


def details(name: str, row: dict[str, Any]) -> list[str]:
    lines = [
        f"### {name}\n",
        "| fix | predicted | measured | outcome |",
        "|---|---|---|---|",
    ]
    for proof in row["proofs"]:
        predicted = proof["predicted"]
        words = (
            f"{predicted['expected']:.2f}x ({predicted['low']:.2f} to {predicted['high']:.2f})"
            if predicted
            else ""
        )
        measured = ratio(proof["speedup"]) if proof["speedup"] else ""
        why = "" if proof["outcome"] == "kept" else f": {proof['why']}"
        lines.append(f"| {proof['treatment']} | {words} | {measured} | {proof['outcome']}{why} |")
    return lines


def ratio(found: dict[str, float]) -> str:
    return f"{found['median']:.2f}x ({found['low']:.2f} to {found['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["run", "hand", "aa", "table"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--budget", default="240s")
    parser.add_argument("--tries", type=int, default=20, help="of aa")
    args = parser.parse_args()
    if args.verb == "table":
        table()
    elif args.verb == "run":
        run(args.names or ON_GPU, args.budget)
    elif args.verb == "aa":
        against_itself(args.names or ["small_mlp"], args.budget, args.tries)
    else:
        hand(args.names or ON_GPU)


if __name__ == "__main__":
    main()
