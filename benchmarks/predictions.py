"""Predicted beside measured: what each fix buys, from the unfixed step's diagnosis alone.

    python benchmarks/predictions.py go bert gpt2        # what boundby says, then the clock
    python benchmarks/predictions.py predict bert gpt2   # what boundby says, nothing fixed yet
    python benchmarks/predictions.py measure bert gpt2   # the clock, on this machine
    python benchmarks/predictions.py table               # docs/predictions.md, from the ledger

A go is both, one after the other on one machine: hosts differ by a fifth from one to the next.

Every measurement is a fresh process without a profiler, the variants interleaved, several rounds.
Processes are forked from one that has imported torch but never touched the device: the same as
started anew, without the wait. One line of the ledger is one measured or predicted variant.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from ledger import ROOT, Ledger, Row

LEDGER = Ledger("predictions", key=("device", "what", "case", "fix"))
DOCUMENT = ROOT / "docs" / "predictions.md"
ROUNDS = 3
STEPS = 20
FEWEST_STEPS = 8
_SECONDS = 1.5
WARMUP = 6
_PATIENCE_S = 200
# A step this near its device's busy time is device-bound.
DEVICE_BOUND = 1.08
KNOWN = 0.15

# A fix: the options that make it by hand, and the faults whose mending predicts it.
Fix = tuple[str, list[str]]
LANGUAGE: dict[str, Fix] = {
    "fused": ("--fused", ["unfused-optimizer"]),
    "sdpa": ("--attention sdpa", ["materialised-attention"]),
    "compile": ("--compile", ["unfused-operators"]),
    "graphs": ("--graphs", ["eager-launches"]),
    "sdpa + fused": ("--attention sdpa --fused", ["materialised-attention", "unfused-optimizer"]),
    "compile + sdpa + fused": (
        "--compile --attention sdpa --fused",
        ["unfused-operators", "materialised-attention", "unfused-optimizer"],
    ),
    "graphs + sdpa + fused": (
        "--graphs --attention sdpa --fused",
        ["eager-launches", "materialised-attention", "unfused-optimizer"],
    ),
}
VISION: dict[str, Fix] = {
    "fused": ("--fused", ["unfused-optimizer"]),
    "compile": ("--compile", ["unfused-operators"]),
    "graphs": ("--graphs", ["eager-launches"]),
    "compile + fused": ("--compile --fused", ["unfused-operators", "unfused-optimizer"]),
    "graphs + fused": ("--graphs --fused", ["eager-launches", "unfused-optimizer"]),
}
CONVOLUTIONS: dict[str, Fix] = {
    **VISION,
    "channels last": ("--channels-last", ["layout-copies"]),
    "channels last + graphs": ("--channels-last --graphs", ["layout-copies", "eager-launches"]),
}
PRECISION: dict[str, Fix] = {
    "tf32": ("--precision tf32", ["float32-products"]),
    "bf16": ("--precision bf16", ["float32-activations"]),
}


def batches(batch: int) -> dict[str, Fix]:
    """Twice and four times the batch: predicted as the new step's time, not as a saving."""
    return {f"batch {n}x": (f"--batch {n * batch}", [f"batch-{n}x"]) for n in (2, 4)}


# What is diagnosed, by name: its options, and the fixes to it.
CASES: dict[str, tuple[str, dict[str, Fix]]] = {
    "bert": ("bert", {**LANGUAGE, **batches(8)}),
    "bert float32": ("bert --precision float32", PRECISION),
    "gpt2": ("gpt2", {**LANGUAGE, **batches(8)}),
    "llama": ("llama", {**LANGUAGE, **batches(4)}),
    "resnet50": ("resnet50", {**CONVOLUTIONS, **batches(64)}),
    "resnet50 float32": ("resnet50 --precision float32", {"bf16": PRECISION["bf16"]}),
    "vit": ("vit", {**VISION, **batches(64)}),
    "vit float32": ("vit --precision float32", PRECISION),
    # Its group norms undo channels-last, which boundby does not advise there: 11.1 to 14.0 ms.
    "unet": ("unet", {**VISION, **batches(16)}),
}


def measure(names: list[str], fixes: list[str], seconds: float, go: int) -> None:
    import torch  # noqa: F401  imported here, once, so that no child has to

    for library in ("transformers", "timm", "transformers.models.bert.modeling_bert"):
        try:
            __import__(library)
        except ImportError:
            print(f"{library} is not installed")
    for name in names:
        measure_case(name, fixes or list(CASES[name][1]), time.monotonic() + seconds, go)


def measure_case(name: str, wanted: list[str], deadline: float, go: int) -> None:
    """Round by round while there is time; the variants of one go stand beside its unfixed step."""
    base, fixes = CASES[name]
    variants = {"eager": base}
    variants |= {fix: f"{base} {fixes[fix][0]}" for fix in wanted if fix in fixes}
    walls: dict[str, list[float]] = {variant: [] for variant in variants}
    problems: dict[str, str] = {}
    busy: dict[str, float] = {}
    for turn, (variant, options) in itertools.product(range(ROUNDS), variants.items()):
        if variant in problems or time.monotonic() > deadline:
            continue
        taken = in_a_fresh_process(options, profiled=turn == 0)
        if isinstance(taken, str):
            problems[variant] = taken
            print(f"{name}: {variant}: {taken}", flush=True)
            continue
        walls[variant].append(taken[0])
        busy.setdefault(variant, taken[1])
    for variant, taken_ns in walls.items():
        if taken_ns or variant in problems:
            row = {
                "what": "measured",
                "case": name,
                "fix": variant,
                "go": go,
                "rounds_ns": taken_ns,
                "busy_ns": busy.get(variant),
                "problem": problems.get(variant),
            }
            LEDGER.append(row)
        shown = [round(ns / 1e6, 2) for ns in taken_ns]
        print(name, variant, shown, "busy", round(busy.get(variant, 0) / 1e6, 2), flush=True)


def in_a_fresh_process(options: str, *, profiled: bool) -> tuple[float, float] | str:
    """The median step of a variant and its device's busy time in ns, or why there is none."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(options.split(), profiled, sender))
    process.start()
    sender.close()
    deadline = time.monotonic() + _PATIENCE_S
    answer: tuple[float, float] | str = "no answer in time"
    while time.monotonic() < deadline:
        if receiver.poll(0.2):
            try:
                answer = receiver.recv()
            except EOFError:
                answer = "died"
            break
    process.kill()
    process.join()
    return answer


def _child(options: list[str], profiled: bool, sender: Any) -> None:
    try:
        sender.send(_step_times(options, profiled))
    except Exception as error:  # noqa: BLE001  a variant that fails is a row that says so
        sender.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        traceback.print_exc(file=sys.stderr)
    sender.close()


def _step_times(options: list[str], profiled: bool) -> tuple[float, float]:
    import torch
    import workloads

    args = workloads.arguments().parse_args(options)
    workloads.prepare(args)
    step = workloads.training_step(args)
    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    began = time.monotonic()
    step()
    torch.cuda.synchronize()
    steps = min(STEPS, max(FEWEST_STEPS, int(_SECONDS / (time.monotonic() - began))))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) * 1e6 for a, b in itertools.pairwise(marks))
    return times[len(times) // 2], _busy_ns(step) if profiled else 0.0


def _busy_ns(step: Any) -> float:
    """Device time of one step; asked for last, since a profiler slows its process for good."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(2):
            step()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiler.key_averages()) * 1e3 / 2


def predict(names: list[str], go: int) -> None:
    """What boundby says of each fix, from one diagnosis of the unfixed step."""
    for name in names:
        base, fixes = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "diagnosis.json"
            script = ["benchmarks/workloads.py", *base.split()]
            done = subprocess.run(
                [sys.executable, "-m", "boundby", "run", "--json", str(target), *script],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if not target.exists():
                print(f"{name}: failed\n{done.stderr[-3000:]}")
                continue
            diagnosis = json.loads(target.read_text())
        wall = diagnosis["step"]["wall_ns"]
        error = diagnosis["step"]["replay_error"]
        print(f"{name}: {wall / 1e6:.2f} ms, replay error {error:+.3f}", flush=True)
        for fix, (_, faults) in fixes.items():
            found = predicted(diagnosis, faults)
            row = {"what": "predicted", "case": name, "fix": fix, "go": go, "wall_ns": wall}
            LEDGER.append({**row, **found})
            shown = {key: round(ns / 1e6, 2) for key, ns in found["predicted_ns"].items()}
            print(f"  {fix}: {shown}", flush=True)


def predicted(diagnosis: dict[str, Any], faults: list[str]) -> dict[str, Any]:
    """The step's time with some faults mended; a fault that was not found costs nothing."""
    wall = diagnosis["step"]["wall_ns"]
    error = diagnosis["step"]["replay_error"]
    if faults[0].startswith("batch-"):
        factor = int(faults[0].removeprefix("batch-").removesuffix("x"))
        rows = [row["wall_ns"] for row in diagnosis["batches"] if row["factor"] == factor]
        return {"predicted_ns": rows[0], "replay_error": error, "factor": factor}
    known = {finding["fault"] for finding in diagnosis["findings"]}
    wanted = known & set(faults)
    for row in diagnosis["what_if"]:
        if wanted and set(row["faults"]) == wanted:
            return {"predicted_ns": row["wall_ns"], "replay_error": error}
    nothing = {"low": 0.99 * wall, "expected": wall, "high": wall}
    return {"predicted_ns": nothing, "replay_error": error}


def rows_of(ledger: list[Row], device: str) -> list[Row]:
    """Predicted beside measured, newest of each, of one go where there is one that has both."""
    mine = [row for row in ledger if row["device"] == device]
    newest = {(row["what"], row["case"], row["fix"]): row for row in mine}
    # Goes had no number once: what was measured at one commit was.
    gone = {(row["what"], *_go(row), row["fix"]): row for row in mine}
    rows = []
    for case, (_, fixes) in CASES.items():
        for fix in fixes:
            clock = newest.get(("measured", case, fix))
            if clock is None:
                continue
            guess = newest.get(("predicted", case, fix))
            if "go" in clock:
                guess = gone.get(("predicted", *_go(clock), fix), guess)
            if guess is not None:
                eager = gone["measured", *_go(clock), "eager"]
                rows.append(_scored(case, fix, guess, eager, clock))
    return rows


def _go(row: Row) -> tuple[Any, ...]:
    return row["case"], row.get("go") or row["commit"]


def _scored(
    case: str, fix: str, guess: dict[str, Any], eager: dict[str, Any], clock: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case, "fix": fix, "problem": clock["problem"]}
    factor = guess.get("factor", 1)
    said = {k: factor * guess["wall_ns"] - ns for k, ns in guess["predicted_ns"].items()}
    # The shortest step is the largest saving.
    row["said"] = (said["high"], said["expected"], said["low"])
    if not clock["rounds_ns"] or not eager["rounds_ns"]:
        return row
    before, after = eager["rounds_ns"], clock["rounds_ns"]
    middle = statistics.median(after)
    row["before"], row["after"] = factor * statistics.median(before), middle
    row["saved"] = row["before"] - middle
    doubt = (factor**2 * _variance(before) + _variance(after)) ** 0.5
    row["known_within"] = doubt / abs(row["saved"]) if row["saved"] else float("inf")
    row["inside"] = row["said"][0] <= row["saved"] <= row["said"][2]
    row["error"] = abs(row["said"][1] - row["saved"]) / abs(row["saved"]) if row["saved"] else None
    row["device_bound"] = bool(clock["busy_ns"]) and middle < DEVICE_BOUND * clock["busy_ns"]
    row["width"] = (row["said"][2] - row["said"][0]) / row["before"]
    return row


def _variance(rounds: list[float]) -> float:
    """Of their median, as that of a mean: few rounds tell no more."""
    return statistics.variance(rounds) / len(rounds) if len(rounds) > 1 else 0.0


def table() -> None:
    ledger = LEDGER.rows()
    parts = [HEAD]
    for where in sorted({row["device"] for row in ledger}):
        rows = rows_of(ledger, where)
        parts += [f"## {where}\n", _summary(rows), "", _heading()]
        parts += [_line(row) for row in rows]
        parts.append("")
    DOCUMENT.write_text("\n".join(parts) + "\n")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


HEAD = """# Predicted beside measured

Made by `python benchmarks/predictions.py go` and `table`. Predictions come from one diagnosis of
the unfixed step; measurements are medians of three fresh processes without a profiler, interleaved.
Times in ms. `saved` is the unfixed step less the fixed one (for a larger batch: as many unfixed
steps as hold the same samples). `known` is the measurement's own uncertainty beside the saving:
past 15% a row counts for coverage only.

The newest measurement of each fix counts, beside the unfixed step of its own go, and beside the
prediction of that go where there was one. (Older predictions stand beside measurements on another
machine of the same kind, whose host may be a fifth faster or slower.)
"""


def _heading() -> str:
    columns = [
        "model",
        "fix",
        "before",
        "after",
        "saved",
        "known",
        "predicted saving",
        "error",
        "inside",
        "bound by",
    ]
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)


def _line(row: dict[str, Any]) -> str:
    low, middle, high = (f"{ns / 1e6:.1f}" for ns in row["said"])
    said = f"{middle} ({low} to {high})"
    if "saved" not in row:
        return (
            f"| {row['case']} | {row['fix']} | - | - | - | - | {said} | - | - | {row['problem']} |"
        )
    error = f"{row['error']:.0%}" if row["known_within"] <= KNOWN else f"({row['error']:.0%})"
    bound = "device" if row["device_bound"] else "host"
    return (
        f"| {row['case']} | {row['fix']} | {row['before'] / 1e6:.1f} | {row['after'] / 1e6:.1f} |"
        f" {row['saved'] / 1e6:.1f} | {row['known_within']:.0%} | {said} | {error} |"
        f" {'yes' if row['inside'] else 'no'} | {bound} |"
    )


def _summary(rows: list[dict[str, Any]]) -> str:
    measured = [row for row in rows if "saved" in row]
    scored = [row for row in measured if row["known_within"] <= KNOWN]
    bound = [row["error"] for row in scored if row["device_bound"]]
    inside = [row["inside"] for row in measured]
    if not scored:
        return "Nothing measured well enough to be scored yet."
    return (
        f"{len(measured)} fixes measured, {len(scored)} of them known within {KNOWN:.0%}. Median"
        f" error of the time saved: {statistics.median(row['error'] for row in scored):.1%} over"
        f" all, {statistics.median(bound) if bound else float('nan'):.1%} where the fixed step is"
        f" device-bound ({len(bound)}). Inside the interval: {sum(inside)} of {len(inside)}"
        f" ({sum(inside) / len(inside):.0%}); median width of the intervals"
        f" {statistics.median(row['width'] for row in measured):.0%} of the unfixed step."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["go", "measure", "predict", "table"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--fixes", default="", help="only these of them, separated by commas")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for the rounds of a model")
    args = parser.parse_args()
    if args.verb == "table":
        table()
        return
    for name in args.names or list(CASES):
        go = int(time.time())
        if args.verb in ("go", "predict"):
            predict([name], go)
        if args.verb in ("go", "measure"):
            measure([name], [fix for fix in args.fixes.split(",") if fix], args.seconds, go)


if __name__ == "__main__":
    main()
