"""Every run compiles everything again.

What it looks for
    Seconds of compilation in a run without a persistent compilation cache.

Why it costs time
    Compiled programs are lost when the process ends. The next run of the same script compiles the
    same programs again.

What to change
    Set `JAX_COMPILATION_CACHE_DIR=DIR`, or
    `jax.config.update("jax_compilation_cache_dir", DIR)` before the first computation.

When it does not help
    For the first run, and where the shapes or the code changed since. Long runs compile for a small
    part of their time.

Measured on
    The first call of a GPT on an H200: 9.9 s, 1.0 s with a cache.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.assumptions.jax_savings import COMPILATION_CACHE_SHARE
from boundby.model.estimate import Estimate
from boundby.step.jax_programs import facts_of
from boundby.step.model import StepView

_LEAST_NS = 5e9  # less compilation is not reported


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    if facts is None or facts.has_compilation_cache:
        return None
    spent = sum(one.ns for one in facts.compilations)
    if spent < _LEAST_NS:
        return None
    return Detection.of_run(
        Estimate(
            low=COMPILATION_CACHE_SHARE.low * spent,
            expected=COMPILATION_CACHE_SHARE.value * spent,
            high=COMPILATION_CACHE_SHARE.high * spent,
        ),
        where=[],
        change="export JAX_COMPILATION_CACHE_DIR=~/.cache/jax",
        assumes="the script runs again with the same code and shapes",
        evidence=f"{len(facts.compilations)} programs were compiled, for {units.time(spent)}",
    )


FAULT = Fault(
    id="jax-compilation-cache",
    title="No persistent compilation cache",
    kind="note",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    combines=False,
    document=__doc__,
    detect=detect,
    relative_to="run",
)
