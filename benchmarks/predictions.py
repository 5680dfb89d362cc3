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
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from fixes import CASES
from ledger import ROOT
from predictions_table import LEDGER, table

ROUNDS = 3
STEPS = 20
FEWEST_STEPS = 8
_SECONDS = 1.5
WARMUP = 6
_PATIENCE_S = 200


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
