"""What boundby costs a clean step of a JAX script: the CPU time of its thread, watched and not.

    python benchmarks/jax_hook_cost.py --leaves 50 --calls-a-step 3

Blocks of steps alternate in one process: the compiled functions as jax made them, and as the hooks
wrap them, with a recorder in its window of clean steps. Prints the median difference a step, with
the quartiles, and its share of a step of 1 ms. `--profile` prints where it is spent instead.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from boundby.capture.jax.hooks import JaxHooks
from boundby.capture.jax.recorder import JaxRecorder
from boundby.capture.process.plan import Plan
from boundby.capture.process.windows import Window

STEP_NS = 1e6
BLOCK = 50


def main() -> None:
    options = _parse()
    bare_step = _program(options.leaves, options.calls_a_step)
    hooks = JaxHooks()
    hooks.install(jax)
    watched_step = _program(options.leaves, options.calls_a_step)
    plan = Plan(warmup=8, clean=10**7, issue=0, profiled=0, most_clean_s=1e9)
    with tempfile.TemporaryDirectory() as folder:
        recorder = JaxRecorder(
            jax,
            plan=plan,
            by_marks=False,
            folder=Path(folder),
            on_done=lambda: None,
            hooks=hooks,
        )
        hooks.watcher = recorder
        while recorder.windows.window is not Window.CLEAN:
            watched_step()
        if options.profile:
            _profile(watched_step)
        else:
            _compare(bare_step, watched_step, options.blocks)


def _program(leaves: int, calls: int) -> Callable[[], Any]:
    """A training step: a function that carries state, between others that do not."""
    state = [jnp.zeros(4) for _ in range(leaves)]
    batch = jnp.ones(4)
    step = jax.jit(lambda state, x: ([one + x for one in state], x.sum()))
    others = [jax.jit(lambda x, at=at: x + at) for at in range(calls - 1)]
    held = [state]

    def run() -> Any:
        x = batch
        for other in others:
            x = other(x)
        held[0], loss = step(held[0], x)
        return loss

    return run


def _compare(bare: Callable[[], Any], watched: Callable[[], Any], blocks: int) -> None:
    extra = []
    for _ in range(blocks):
        first, second = _timed(bare), _timed(watched)
        third = _timed(bare)
        extra.append(second - (first + third) / 2)
    low, middle, high = statistics.quantiles(extra, n=4)
    print(
        f"{middle / 1e3:.1f} us a step (quartiles {low / 1e3:.1f} to {high / 1e3:.1f}, "
        f"{blocks} blocks of {BLOCK}): {middle / STEP_NS:.1%} of a step of 1 ms"
    )


def _timed(step: Callable[[], Any]) -> float:
    """CPU time of the calling thread in ns a step, which other programs lengthen little."""
    began = time.thread_time_ns()
    for _ in range(BLOCK):
        loss = step()
    spent = time.thread_time_ns() - began
    loss.block_until_ready()
    return spent / BLOCK


def _profile(step: Callable[[], Any]) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(2000):
        step()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=20)
    parser.add_argument("--calls-a-step", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
