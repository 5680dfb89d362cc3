"""JAX compiles again during training.

What it looks for
    Compilations in steps after the warm-up, from JAX's own reports, and functions that are passed
    to `jax.jit` again in every step.

Why it costs time
    A compiled function is kept for the shapes, dtypes and static arguments that it was called with.
    New ones compile it again, which takes seconds. A function that is defined and jitted inside the
    loop is a new one each time: nothing that was compiled for the last one is used.

What to change
    Call `jax.jit` once, outside of the loop. Pad batches to a few shapes. Pass numbers that change
    as arrays, not as static arguments. `JAX_EXPLAIN_CACHE_MISSES=1` prints what differs.

When it does not help
    When each shape is compiled once and then recurs: a longer run has them all.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from collections import Counter

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.assumptions.detection import JIT_IN_LOOP
from boundby.model.estimate import Estimate
from boundby.model.jax_facts import JaxFacts
from boundby.step.jax_programs import facts_of
from boundby.step.model import StepView
from boundby.step.pauses import shares

_ONCE = "step = jax.jit(step)  # once, before the loop"
_SHAPES = "pad batches to a few shapes; pass numbers that change as arrays, not as static arguments"


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    seen = step.host_counters
    if facts is None or not any(seen.compiler_ns):
        return None
    low, expected, high = shares(seen.compiler_ns, seen.steps_ns)
    lost_ns = step.base_ns * step.stall_sensitivity(max(seen.compiler_ns))
    compiling = sum(ns > 0 for ns in seen.compiler_ns)
    again = Counter(
        _name(one.function) for one in facts.compilations if one.step >= facts.warmup_steps
    )
    remade = _remade(facts)
    each = units.time(sum(seen.compiler_ns) / compiling)
    return Detection.of_saving(
        Estimate(low=lost_ns * low, expected=lost_ns * expected, high=lost_ns * high),
        where=_where(facts, again),
        change=_ONCE if remade else _SHAPES,
        assumes="later steps are like these",
        evidence=f"{compiling} of {len(seen.compiler_ns)} steps traced or compiled, for {each} each"
        + (f": {', '.join(name for name, _ in again.most_common(3))}" if again else "")
        + (f"; {remade} is jitted in the loop" if remade else ""),
    )


def _remade(facts: JaxFacts) -> str | None:
    """The function that is passed to jax.jit again and again."""
    least = max(3, JIT_IN_LOOP.value * facts.warmup_steps)
    often = [function for function in facts.functions if function.made >= least]
    return max(often, key=lambda function: function.made).name if often else None


def _where(facts: JaxFacts, again: Counter[str]) -> list[str]:
    sources = {function.name: function.source for function in facts.functions}
    named = [sources.get(name) for name, _ in again.most_common()]
    return [source for source in named if source is not None][:3]


def _name(program: str) -> str:
    """The function's own name: "step" of "jit(step)"."""
    return program.removeprefix("jit(").removesuffix(")")


FAULT = Fault(
    id="jax-recompilation",
    title="JAX compiles again in the loop",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
