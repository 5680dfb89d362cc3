"""Distributions check their arguments in every step.

What it looks for
    Operators and Python inside the validation of `torch.distributions`: constraints of parameters
    when a distribution is made, and of values when `log_prob` is called.

Why it costs time
    Each check reads its tensor, reduces it to one value, and waits for that value. A small
    distribution takes several times as long with them. On a GPU each is a synchronisation.

What to change
    `torch.distributions.Distribution.set_default_validate_args(False)` once at the start, or
    `validate_args=False` where a distribution is made.

When it does not help
    While a distribution with wrong parameters is being searched for.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.fixes import debug_settings
from boundby.model import HostKind
from boundby.model.assumptions.program_savings import SETTING_LEFT
from boundby.step.host_intervals import called_from
from boundby.step.model import StepView
from boundby.step.nesting import nearest
from boundby.step.rows import without_rows

_CHECK = re.compile(
    r"torch/distributions/constraints\.py\(\d+\): (?:check|__call__)"
    r"|torch/distributions/distribution\.py\(\d+\): _validate_sample"
)
_BASE = re.compile(r"torch/distributions/distribution\.py\(\d+\): __init__")


def detect(step: StepView) -> Detection | None:
    timeline, host = step.timeline, step.timeline.host
    frames = host.kind == HostKind.PYTHON
    checks = np.array([bool(_CHECK.search(name)) for name in timeline.names] or [False])
    base = np.array([bool(_BASE.search(name)) for name in timeline.names] or [False])
    wanted = frames & checks[host.name]
    if not wanted.any():
        return None
    # Without checks, a constructor that calls them does nothing else.
    around = nearest(host.parent, frames & base[host.name])[wanted]
    wanted[around[around >= 0]] = True
    rows = step.inside(wanted)
    lines: dict[str, int] = {}
    called = called_from(host)
    for row in np.flatnonzero(wanted):
        if called[row] >= 0:
            line = timeline.sources[called[row]]
            lines[line] = lines.get(line, 0) + int(host.duration_ns[row])
    return Detection(
        low=without_rows(step, rows, SETTING_LEFT.high),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=sorted(lines, key=lambda line: -lines[line])[:4],
        change="torch.distributions.Distribution.set_default_validate_args(False)",
        assumes="parameters and values are valid",
    )


FAULT = Fault(
    id="distribution-checks",
    title="Distributions check their arguments",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(debug_settings.UNCHECKED_DISTRIBUTIONS,),
)
