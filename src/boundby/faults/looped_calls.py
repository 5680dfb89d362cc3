"""A Python loop makes many small calls where one would do.

What it looks for
    Lines of the script that run many times within one call of their function, each time calling
    the same operators, or the same module: a loop over time steps, graphs, views, classes or rows,
    also where a function is called in each round, and where the rounds' tensors differ in size;
    or that call many modules of a list, such as attention heads, of which none needs another's
    result, or the whole model on one sample of a batch after the other.
    Operators that need the result of the round before stay, unless they make up a recurrent cell.

Why it costs time
    Each iteration does little arithmetic, and pays for Python, the dispatcher and autograd.

What to change
    Apply the operators to all iterations at once, along one more dimension. A cell in a loop over
    time is `nn.LSTM`, `nn.GRU` or `nn.RNN`; a layer that needs no earlier result is applied to the
    whole sequence. Heads of attention are parts of one projection: `q(x).unflatten(-1, (heads,
    -1))`. Graphs of a batch become one graph with blocks on the diagonal.

When it does not help
    When each iteration needs the result of the one before and there is no operator for the whole
    loop. When each iteration keeps the device busy.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from boundby.faults.fault import Detection, Fault
from boundby.step.loop import Loop
from boundby.step.loop_savings import together
from boundby.step.loops import looping_lines
from boundby.step.model import StepView
from boundby.step.sample_loops import find_sample_loops

# Loops with a smaller share of the step in total are not named.
_COUNTS = 0.02
_MOST_LINES = 5  # display limit


def detect(step: StepView) -> Detection | None:
    known = {loop.source for loop in find_sample_loops(step)}
    loops = [
        one
        for one in looping_lines(step)
        if one.is_uniform and one.source not in known
        if not one.is_recurrence and not one.is_rollout
    ]
    if sum(loop.independent_share * loop.ns for loop in loops) < _COUNTS * step.wall_ns:
        return None
    loops.sort(key=lambda loop: -loop.independent_share * loop.ns)
    rounds = max(loop.rounds for loop in loops)
    return Detection(
        low=together(step, loops, left=0.5),
        expected=together(step, loops, left=0.0),
        high=together(step, loops, left=0.0, for_nothing=True),
        where=_lines(loops)[:_MOST_LINES],
        change=f"# one call for all {rounds} rounds of the loop, along one more dimension",
        assumes="the iterations can be computed together",
    )


def _lines(loops: Sequence[Loop]) -> list[str]:
    """Each loop's line, and the first of those of the function that it calls."""
    return list(dict.fromkeys(line for loop in loops for line in (loop.line, *loop.lines[:2])))


FAULT = Fault(
    id="looped-calls",
    title="Loop of small calls",
    kind="mistake",
    group="overhead",
    excludes=("looped-samples",),
    yields_to=(
        "rebuilt-tensors",
        "looped-samples",
        "looped-parameters",
        "repeated-forward",
        "distribution-checks",
        "host-metrics",
    ),
    document=__doc__,
    detect=detect,
)
