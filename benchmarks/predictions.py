"""Predicted beside measured: what each fix buys, from the unfixed step's diagnosis alone.

    python benchmarks/predictions.py measure bert gpt2   # the clock, on this machine
    python benchmarks/predictions.py predict bert gpt2   # what boundby says, nothing fixed yet
    python benchmarks/predictions.py table               # docs/predictions.md, from the ledger

Every measurement is a fresh process without a profiler, the variants interleaved, several rounds.
Processes are forked from one that has imported torch but never touched the device: the same as
started anew, without the wait. One line of the ledger is one measured or predicted variant.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "benchmarks" / "ledgers" / "predictions.jsonl"
DOCUMENT = ROOT / "docs" / "predictions.md"
ROUNDS = 3
STEPS = 20
WARMUP = 6
_PATIENCE_S = 200

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
    "unet": ("unet", {**CONVOLUTIONS, **batches(16)}),
}


def measure(names: list[str]) -> None:
    import torch  # noqa: F401  imported here, once, so that no child has to

    for library in ("transformers", "timm", "transformers.models.bert.modeling_bert"):
        try:
            __import__(library)
        except ImportError:
            print(f"{library} is not installed")
    for name in names:
        base, fixes = CASES[name]
        variants = {
            "eager": base,
            **{fix: f"{base} {options}" for fix, (options, _) in fixes.items()},
        }
        walls: dict[str, list[float]] = {variant: [] for variant in variants}
        problems: dict[str, str] = {}
        for _ in range(ROUNDS):
            for variant, options in variants.items():
                if variant in problems:
                    continue
                taken = in_a_fresh_process(options)
                if isinstance(taken, str):
                    problems[variant] = taken
                    print(f"{name}: {variant}: {taken}", flush=True)
                else:
                    walls[variant].append(taken)
        for variant, taken_ns in walls.items():
            row = {
                "what": "measured",
                "case": name,
                "fix": variant,
                "rounds_ns": taken_ns,
                "problem": problems.get(variant),
            }
            write(row)
            print(name, variant, [round(ns / 1e6, 2) for ns in taken_ns], flush=True)


def in_a_fresh_process(options: str) -> float | str:
    """The median step of a variant in ns, or why there is none."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(options.split(), sender))
    process.start()
    sender.close()
    deadline = time.monotonic() + _PATIENCE_S
    answer: float | str = "no answer in time"
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


def _child(options: list[str], sender: Any) -> None:
    try:
        sender.send(_median_step_ns(options))
    except Exception as error:  # noqa: BLE001  a variant that fails is a row that says so
        sender.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        traceback.print_exc(file=sys.stderr)
    sender.close()


def _median_step_ns(options: list[str]) -> float:
    import torch
    import workloads

    args = workloads.arguments().parse_args(options)
    workloads.prepare(args)
    step = workloads.training_step(args)
    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) * 1e6 for a, b in itertools.pairwise(marks))
    return times[len(times) // 2]


def write(row: dict[str, Any]) -> None:
    LEDGER.parent.mkdir(parents=True, exist_ok=True)
    row = {**row, "commit": commit(), "device": device()}
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps(row) + "\n")


def device() -> str:
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "cpu"


def commit() -> str:
    if named := os.environ.get("BOUNDBY_COMMIT"):
        return named
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2:] or list(CASES))
    else:
        sys.exit(__doc__)
