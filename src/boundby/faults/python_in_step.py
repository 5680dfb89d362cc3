"""The script's own Python code runs during the step while the model waits.

What it looks for
    Intervals of the step, longer than twenty operators take, in which no operator, no module of the
    model and no torch code runs: Python code of the script or of a library that it calls. Libraries
    that also run the model, such as a trainer's loop, are not counted. Time that a DataLoader needs
    for a batch is `waiting-for-data`; garbage collection is `collector-pauses`.

Why it costs time
    One Python thread does one thing at a time. While it computes statistics, writes a log,
    tokenizes text or transforms images, it issues no operators, and the device becomes idle once
    its queue is empty. On a CPU this time is added to the step in full.

What to change
    Compute logs and statistics every hundred steps instead of in every step. Move the preparation
    of batches into a `Dataset` with `DataLoader` workers. Compute constant values once, before the
    loop. Replace Python loops that are needed in each step by torch or numpy operators. Step
    several environments of an agent at once (`gymnasium.make_vec`): one call of the model serves
    all.

When it does not help
    When the device has enough queued work to stay busy. When the next step needs the result and
    nothing else can compute it earlier.

Measured on
    A small training step on two cores of a Neoverse N1, one run each. Statistics in a Python loop:
    15.1 to 11.4 ms (saved 3.7 ms, predicted 3.4). Images shifted one by one with numpy: 16.6 to
    11.4 ms (5.2, predicted 4.8). Text split into words: 12.0 to 11.4 ms (0.6, predicted 0.3). A log
    in JSON: 12.3 to 11.5 ms (0.8, predicted 0.6). On an H200, the same statistics: 7.3 to 2.0 ms,
    73% less; predicted 75% (29 to 93).
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.model.assumptions.program_savings import SCRIPT_LEFT
from boundby.step.jax_programs import rollout_span
from boundby.step.loops import looping_lines
from boundby.step.model import Edit, HostTime, StepView
from boundby.step.user_python import own_lines, stretches, user_python

_ENVIRONMENT = (
    "# the environment in jax.numpy, and the whole rollout as one jax.lax.scan under jax.jit; or "
    "more environments in each call of the policy"
)
# A line with a smaller share of it is not named.
_COUNTS = 0.1
_MOST_LINES = 3  # display limit


def detect(step: StepView) -> Detection | None:
    own = user_python(step)
    if own.likely.ns <= 0 or not (lines := step.memoised(own_lines)):
        return None
    is_environment = _is_environment(step)
    least = _COUNTS * sum(one.ns for one in lines.values())
    ranked = sorted(lines, key=lambda line: -lines[line].ns)
    return Detection(
        low=_without(own.likely, left=SCRIPT_LEFT.value),
        expected=_without(own.likely),
        high=_without(own.most),
        where=[line for line in ranked if lines[line].ns >= least][:_MOST_LINES],
        change=_ENVIRONMENT if is_environment else _change(step),
        assumes=f"all of the script's own Python ({units.time(own.likely.ns)} a step) can move out "
        "of the step",
        kind="tuning" if is_environment else None,
    )


def _is_environment(step: StepView) -> bool:
    """Whether most of it runs between the calls of a JAX policy, which are given its results."""
    span = rollout_span(step) if step.framework == "jax" else None
    if span is None:
        return False
    intervals = step.memoised(stretches)
    inside = sum(one.ns for one in intervals if span[0] <= one.start_ns <= span[1])
    return 2 * inside > sum(one.ns for one in intervals)


def _change(step: StepView) -> str:
    """The change; preparing batches in another process needs a free core, which a CPU step may not
    leave. The Python of a rollout is an environment's."""
    if any(loop.is_rollout for loop in looping_lines(step)):
        return (
            "envs = gymnasium.make_vec(NAME, num_envs=8)  # one call of the model for all of them"
        )
    elsewhere = "before the loop" if step.device == "cpu" else "in a DataLoader's workers"
    if step.framework == "jax":
        elsewhere = "in another process, or with jax.random inside the jitted step"
    return f"if step % 100 == 0: ...  # for logging; make batches {elsewhere}"


def _without(own: HostTime, *, left: float = 0.0) -> Edit:
    return Edit.save_host(own * (1 - left)) + Edit(no_user_python=left == 0)


FAULT = Fault(
    id="python-in-step",
    title="The script's own Python takes time in every step",
    kind="mistake",
    group="overhead",
    frameworks=("torch", "jax"),
    document=__doc__,
    detect=detect,
    yields_to=(
        "files-in-step",
        "copied-state",
        "modules-made",
        "rebuilt-tensors",
        "looped-samples",
        "looped-parameters",
        "looped-calls",
        "distribution-checks",
        "anomaly-detection",
        "growing-memory",
        "recompilation",
        "host-metrics",
        "main-process-data",
        "jax-wrapped-step",
    ),
)
