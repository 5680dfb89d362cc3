"""JAX compiles again during training.

What it looks for
    Compilations in steps after the warm-up, from JAX's own reports. What changed: another function
    object of the same code, or arguments of another shape, dtype, structure, sharding or static
    value than in the most similar call before.

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
    A small network on one core of a Xeon whose learning rate is a static argument: 364 ms a step,
    of which 354 are predicted to be saved; a GPT with batches of changing length: 99% measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.estimate import Estimate
from boundby.model.jax_facts import JaxChange, JaxCompilation, JaxFacts
from boundby.step.jax_programs import facts_of
from boundby.step.model import StepView
from boundby.step.pauses import shares

_CALLS = 2  # display limit
_ONCE = "step = jax.jit(step)  # once, before the loop"
_OTHER = "pad batches to a few shapes; pass numbers that change as arrays, not as static arguments"
_CHANGES = {
    "shape": "pad {} to a few shapes",
    "dtype": "give {} the same dtype in every call: jnp.asarray(..., dtype)",
    "value": "pass {} as an array instead of a static argument",
    "structure": "give {} the same structure in every call",
    "sharding": "give {} the same sharding in every call: jax.device_put(..., sharding)",
}


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    seen = step.host_counters
    if facts is None or not any(seen.compiler_ns):
        return None
    again = [one for one in facts.compilations if one.step >= facts.warmup_steps]
    if not again:
        return None  # tracing without a compilation belongs to the operators outside of jax.jit
    where, change, evidence = _where(facts, again), _change(again), _evidence(step, again)
    assumes = "later steps are like these"
    low, expected, high = shares(seen.compiler_ns, seen.steps_ns)
    if not low:
        # The usual step compiles nothing: what others of the run lose is no share of it.
        spent = sum(seen.compiler_ns)
        known = sum(one.ns for one in facts.compilations if one.is_new or one.changes)
        return Detection.of_run(
            # Programs that the warm-up compiled for other arguments are as avoidable.
            Estimate(
                low=spent - max(seen.compiler_ns),
                expected=max(spent, known),
                high=max(spent, known),
            ),
            where=where,
            change=change,
            assumes=assumes,
            evidence=evidence,
        )
    lost_ns = step.base_ns * step.stall_sensitivity(max(seen.compiler_ns))
    return Detection.of_saving(
        Estimate(low=lost_ns * low, expected=lost_ns * expected, high=lost_ns * high),
        where=where,
        change=change,
        assumes=assumes,
        evidence=evidence,
    )


def _change(again: Sequence[JaxCompilation]) -> str:
    """The change for the most frequent reason."""
    if any(one.is_new for one in again):
        return _ONCE
    changes = _commonest(again)
    if not changes:
        return _OTHER
    words = dict.fromkeys(_CHANGES[one.what].format(one.argument) for one in changes[:2])
    return "; ".join(words)


def _commonest(again: Sequence[JaxCompilation]) -> list[JaxChange]:
    """The last change of each argument, those that changed most often first."""
    last = {(one.argument, one.what): one for found in again for one in found.changes}
    often = Counter((one.argument, one.what) for found in again for one in found.changes)
    return [last[key] for key, _ in often.most_common()]


def _evidence(step: StepView, again: Sequence[JaxCompilation]) -> str:
    spent = step.host_counters.compiler_ns
    compiling = sum(ns > 0 for ns in spent)
    names = Counter(map(_name, again))
    each = units.time(sum(spent) / compiling)
    parts = [f"{compiling} of {len(spent)} steps traced or compiled, for {each} each"]
    if names:
        parts[0] += f": {', '.join(name for name, _ in names.most_common(3))}"
    new = next((one for one in again if one.is_new), None)
    if new is not None:
        parts.append(f"JAX was given a new function object of {_name(new)} each time")
    else:
        parts += map(_words, _commonest(again)[:2])
    return "; ".join(parts)


def _words(change: JaxChange) -> str:
    if not change.before and not change.after:
        return f"the {change.what} of {change.argument} changed"
    before, after = (text or "nothing" for text in (change.before, change.after))
    return f"{change.argument} was {before}, then {after}"


def _where(facts: JaxFacts, again: Sequence[JaxCompilation]) -> list[str]:
    """The lines that call what is compiled again, those that wait longest first, and the functions
    themselves."""
    waited: Counter[str] = Counter()
    for one in again:
        if one.where is not None:
            waited[one.where] += int(one.ns)
    calls = [place for place, _ in waited.most_common(_CALLS)]
    sources = {function.name: function.source for function in facts.functions}
    named = [sources.get(name) for name, _ in Counter(map(_name, again)).most_common()]
    places = [*calls, *(source for source in named if source is not None)]
    return list(dict.fromkeys(places))[:3]


def _name(compilation: JaxCompilation) -> str:
    """The function's own name, of "jit(step)"."""
    return compilation.function.removeprefix("jit(").removesuffix(")")


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
