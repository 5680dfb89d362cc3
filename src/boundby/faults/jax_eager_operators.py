"""Operators run one by one between compiled functions, or instead of one.

What it looks for
    Calls of single operators (`add`, `multiply`, `_where`) in the step: what the script computes
    outside of its own jitted functions, such as an optimizer's update that is not jitted.

Why it costs time
    Each operator is a program of its own. The host needs tens of microseconds to issue it, nothing
    is fused with its neighbours, and each result goes through memory.

What to change
    Put the whole step into one function under `jax.jit`: gradients, the optimizer's update and the
    metrics.

When it does not help
    When the device has so much work queued that the host's time is hidden.

Measured on
    An H200, whole updates jitted: a GPT 83% (predicted 67%), a small CNN 90% (71%). These were
    predicted before `JITTED_CALLS_SHARE` was raised to what another GPT had shown (72.6 to
    11.7 ms).
"""

from __future__ import annotations

from collections.abc import Mapping

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.assumptions.jax_savings import JITTED_CALLS_SHARE, JITTED_CPU_CALLS_SHARE
from boundby.step.jax_programs import eager_calls, of_clean_step, overhead_ns
from boundby.step.model import StepView

_WHOLE = "@jax.jit  # around the whole step: gradients, update and metrics"
_KEYS = "keys = jax.random.split(key, n)  # one call for all; or split inside of the jitted step"
# What jax.random runs for new keys, and what their unpacking runs.
_OF_KEYS = ("_threefry_split", "_threefry_fold_in", "_threefry_seed", "_split", "_fold_in")
_UNPACKS = ("unstack", "_unstack")
# Fewer calls are bookkeeping: splitting a random key, making a batch.
_FEWEST = 4


def detect(step: StepView) -> Detection | None:
    calls = eager_calls(step)
    count = sum(calls.names.values())
    if count < _FEWEST:
        return None
    # On a CPU the operators themselves run inside these calls.
    is_cpu = step.timeline.device_kind == "cpu"
    most = step.wall_ns if is_cpu else overhead_ns(step)
    share = JITTED_CPU_CALLS_SHARE if is_cpu else JITTED_CALLS_SHARE
    common = sorted(calls.names, key=lambda name: -calls.names[name])[:3]
    return Detection.of_saving(
        of_clean_step(
            step,
            low=min(share.low * calls.host_ns, share.low * most),
            expected=min(share.value * calls.host_ns, most),
            high=min(share.high * calls.host_ns, share.high * step.wall_ns),
        ),
        where=calls.where,
        change=_KEYS if _splits_keys(calls.names) else _WHOLE,
        assumes="the step's shapes stay the same",
        evidence=f"{count} operators are called one by one in a step ({', '.join(common)}), "
        f"{units.time(calls.host_ns / count)} of the host each",
    )


def _splits_keys(names: Mapping[str, int]) -> bool:
    """Whether nearly all operators make keys of the random generator."""
    others = sum(names[name] for name in names if name not in (*_OF_KEYS, *_UNPACKS))
    return any(name in _OF_KEYS for name in names) and others * 4 < sum(names.values())


FAULT = Fault(
    id="jax-eager-operators",
    title="Operators outside of jax.jit",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    # The same idle device time would be counted twice.
    excludes=("host-sync", "python-in-step", "jax-many-leaves", "jax-debug-checks"),
    stage=Stage.LAUNCHES,
    document=__doc__,
    detect=detect,
)
