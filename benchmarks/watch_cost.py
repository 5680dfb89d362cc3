"""What being watched costs a script as a whole: plain processes and watched ones, in turn.

    python benchmarks/watch_cost.py --rounds 5
    python benchmarks/watch_cost.py --rounds 5 -- bert-base-b1 --steps 120

The script times its own steps, in both by the same clock, from the tenth to the last; boundby
watches it through warm-up and clean steps, without a profiler. Hooks on and off in one process
(hook_cost.py) cannot show what a process pays as a whole; processes differ by more, so this takes
medians over many of them. Prints both and their ratio, with a bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FIRST = 10


def script(options: list[str]) -> None:
    """The watched one: a workload that writes down its steps' times."""
    import time

    import torch
    import workloads

    args = workloads.arguments().parse_args(options)
    workloads.prepare(args)
    step = workloads.training_step(args)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    times = []
    for _ in range(args.steps):
        began = time.perf_counter_ns()
        step()
        wait()
        times.append(time.perf_counter_ns() - began)
    Path(os.environ["BOUNDBY_STEPS"]).write_text(json.dumps(times))


def take(options: list[str], *, watched: bool) -> float:
    """The median step of one process in ms."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "steps.json"
        command = [sys.executable]
        if watched:
            # More clean steps than there are: nothing but watching happens.
            command += ["-m", "boundby", "run", "--quiet", "--steps", "100000", "--continue"]
        command += [__file__, "script", *options]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "BOUNDBY_STEPS": str(written)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not written.exists():
            sys.exit(done.stderr[-2000:])
        return float(np.median(json.loads(written.read_text())[FIRST:])) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("options", nargs="*", default=["bert-base-b1", "--steps", "60"])
    given = parser.parse_args()
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(given.rounds):
        for watched in (False, True) if turn % 2 else (True, False):
            times[watched].append(take(given.options, watched=watched))
            print("watched" if watched else "plain", f"{times[watched][-1]:.3f} ms", flush=True)
    plain, watched_ms = np.array(times[False]), np.array(times[True])
    draws = np.random.default_rng(0).integers(0, given.rounds, (2, 4000, given.rounds))
    ratios = np.median(watched_ms[draws[0]], 1) / np.median(plain[draws[1]], 1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    before, after = np.median(plain), np.median(watched_ms)
    print(
        f"{' '.join(given.options)}: {before:.3f} ms plain, {after:.3f} watched, "
        f"ratio {after / before:.4f} "
        f"({low:.4f} to {high:.4f}), {given.rounds} processes each"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["script"]:
        script(sys.argv[2:])
    else:
        main()
