"""The step that is diagnosed: its kind and its times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boundby.analysis.account import Attribution
from boundby.model import Timeline
from boundby.model.diagnosis import PhaseTime, StepTimes
from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.model.observation import Observation, StepTiming

_NO_STEP = (
    "no step was found: boundby looks for optimizer steps and, in a script without any, for "
    "repeated calls of an outermost module or compiled function, or else for backward passes "
    "(seen: {seen}); mark the end of a step in the script with boundby.step()"
)
_NO_JAX_STEP = (
    "no step was found: boundby looks for repeated calls of functions under jax.jit, of gradient "
    "functions and of loops of jax.lax (seen: {seen}); put the step under jax.jit, or mark its end "
    "in the script with boundby.step()"
)
# A script that calls its compiled functions no more often may have all its steps in one call.
_FEW_CALLS = 4


def require_step(observation: Observation) -> StepTiming:
    """The step to diagnose; an error with the reason if none was found."""
    if observation.step is None:
        seen_words = ", ".join(f"{count} {what}" for what, count in observation.seen.items())
        is_jax = observation.framework == "jax"
        words = (_NO_JAX_STEP if is_jax else _NO_STEP).format(seen=seen_words)
        calls = observation.seen.get("calls", 0)
        if is_jax and 0 < calls <= _FEW_CALLS:
            words += "; a call that contains many steps cannot be divided: take fewer in a call"
        elif not is_jax and calls and not observation.seen.get("optimizer steps"):
            words += ", or count every call of the model as a step: --step-by forward"
        if observation.started:
            others = " or ".join(observation.started)
            words = f"{words}; the script started others: if the steps run there, {others}"
        raise BoundbyError(words)
    return observation.step


def step_times(
    step: StepTiming,
    timeline: Timeline | None,
    attribution: Attribution,
    *,
    replay_error: float | None,
    estimate: Estimate | None,
) -> StepTimes:
    """The step's times as they are saved. `estimate` is that of a step that was only profiled."""
    profiled_ns = None if timeline is None else float(timeline.wall_ns)
    wall_ns = step.wall_ns if step.wall_ns is not None else profiled_ns or 0.0
    if estimate is not None:
        wall_ns, interval = estimate.expected, (estimate.low, estimate.high)
    elif step.wall_ns is None:
        interval = (wall_ns, wall_ns)
    elif step.samples_ns:
        interval = interval_of_median(step.samples_ns)
    else:
        interval = (wall_ns, wall_ns)
    is_known = step.wall_ns is not None or estimate is not None
    dilation = profiled_ns / wall_ns if profiled_ns is not None and wall_ns and is_known else None
    return StepTimes(
        kind=step.kind.label,
        series=step.kind.series,
        wall_ns=wall_ns,
        wall_source="clean" if step.wall_source == "given" else step.wall_source,
        wall_interval_ns=interval,
        samples_ns=list(step.samples_ns),
        phases=[
            PhaseTime(
                name=name,
                host_issue_ns=ns,
                samples_ns=[issued.get(name, 0.0) for issued in step.issue],
            )
            for name, ns in step.phases.items()
        ],
        device_busy_ns=attribution.device_busy_ns,
        kernels=attribution.kernels,
        dilation=dilation,
        profiled_ns=profiled_ns if estimate is not None else None,
        replay_error=replay_error,
        inferred_share=attribution.inferred_share,
        others=step.others,
        unit=step.kind.unit,
    )


def interval_of_median(samples: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the median, by order statistics: no distribution is assumed."""
    ordered = np.sort(np.asarray(samples, float))
    count = len(ordered)
    reach = 0.98 * count**0.5  # 1.96 standard deviations of a binomial with p = 1/2
    low = max(0, int(np.floor(count / 2 - reach)))
    high = min(count - 1, int(np.ceil(count / 2 + reach)) - 1)
    return float(ordered[low]), float(ordered[max(low, high)])
