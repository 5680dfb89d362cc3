"""The script is at work itself in the step, and the model waits.

What it sees
    Stretches of the step in which no operator, no module of the model's and nothing of torch's
    runs, longer than twenty operators take: the script's own Python, or a library's that it calls,
    but for one that runs the model too, as a trainer's loop does. What makes a loader's batches is
    `waiting-for-data`, and a collection of garbage `collector-pauses`.

Why it costs time
    Python does one thing at a time. While it works out statistics, writes a log, draws, splits
    texts into words or turns images, it asks for no work, and a device that has done what was asked
    for stands still. On a CPU the step is simply longer by it.

The change
    What is for people to read: every hundred steps, not in each. What makes batches: into a
    `Dataset`, whose `DataLoader` has workers for it. What is the same in every step: once, before
    the loop. What is needed each time: torch's operators or numpy's in place of a loop.

When it does not help
    When the device has enough work queued to go on meanwhile. When the next step needs what is
    worked out, and nothing else can do that sooner.

Proven on
    A small training step on two cores of a Neoverse N1, one run each: statistics in a Python loop
    15.1 to 11.4 ms without them (of 3.7 ms saved 3.4 were predicted), images shifted one by one
    with numpy 16.6 to 11.4 (5.2 and 4.8), texts split into words 12.0 to 11.4 (0.6 and 0.3), a log
    in JSON 12.3 to 11.5 (0.8 and 0.6). On an H200, statistics as those: 7.3 to 2.0 ms, 73% less;
    75% (29 to 93) were predicted.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.step.model import Edit, StepModel
from boundby.step.user_python import HostTime, own_lines, own_python

# At worst half of it has to stay.
_WORST_LEFT = 0.5
# A line with less than this share of it is not named.
_COUNTS = 0.1
_MOST_LINES = 3


def detect(step_model: StepModel) -> Detection | None:
    own = own_python(step_model)
    if own.likely.ns <= 0 or not (lines := step_model.memoised(own_lines)):
        return None
    least = _COUNTS * sum(one.ns for one in lines.values())
    ranked = sorted(lines, key=lambda line: -lines[line].ns)
    return Detection(
        worst=_without(step_model, own.likely, left=_WORST_LEFT),
        expected=_without(step_model, own.likely),
        best=_without(step_model, own.most),
        where=[line for line in ranked if lines[line].ns >= least][:_MOST_LINES],
        change=_change(step_model),
        assumes=f"none of the script's own Python, {units.time(own.likely.ns)} a step, has to be "
        "in it",
    )


def _change(step_model: StepModel) -> str:
    """What makes batches needs a core of its own to be made on: a step on a CPU may have all."""
    elsewhere = "in a DataLoader's workers" if step_model.on_device else "before the loop"
    return f"if step % 100 == 0: ...  # what is for a log; what makes batches: {elsewhere}"


def _without(step_model: StepModel, own: HostTime, *, left: float = 0.0) -> Edit:
    if step_model.script is None:
        return Edit(python_ns=(1 - left) * own.after_ns, no_user_python=left == 0)
    return Edit(
        host_ns=step_model.script.host_ns - (1 - left) * own.before_ns,
        after_ns=step_model.script.after_ns - (1 - left) * own.after_ns,
        no_user_python=left == 0,
    )


FAULT = Fault(fault="python-in-step", group="overhead", document=__doc__, detect=detect)
