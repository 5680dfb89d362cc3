"""Anomaly detection of autograd is on.

What it looks for
    Backward passes under `torch.autograd.set_detect_anomaly(True)` or `detect_anomaly()`, as
    torch itself reports, and what they do for it: a traceback for every recorded operator, and a
    search for NaN in every gradient.

Why it costs time
    Each operator of the forward formats the whole Python stack, and each gradient is read once
    more, with a value that the host waits for. It is meant for a few steps of debugging. Around a
    backward alone, with `check_nan=False`, it costs little, finds nothing and is reported too.

What to change
    Remove `set_detect_anomaly(True)` and `with detect_anomaly():`. Switch it on again when a loss
    becomes NaN.

When it does not help
    While a NaN is being searched for.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.fixes import debug_settings
from boundby.model import Phase
from boundby.model.assumptions.program_savings import ANOMALY_REST
from boundby.model.rows import NO_LINE
from boundby.step.model import StepView
from boundby.step.rows import without_rows

# Tracebacks of the forward, and entering and leaving `detect_anomaly`, which warns each time.
_FRAMES = re.compile(r"^(?:.*/)?(?:traceback\.py|linecache\.py|autograd/anomaly_mode\.py)\(")
_CHECKS = ("aten::isnan", "aten::any", "aten::item", "aten::is_nonzero", "aten::ne")


def detect(step: StepView) -> Detection | None:
    settings = step.evidence.settings
    lines = settings.anomaly_lines
    if not lines and not settings.anomaly:
        return None
    host, names = step.timeline.host, step.timeline.names
    formats = np.array([bool(_FRAMES.match(name)) for name in names] or [False])
    checks = np.array([name in _CHECKS for name in names] or [False])
    outermost = checks[host.name] & (host.phase == Phase.BACKWARD)
    # The engine itself makes the checks: they are no forward operator's backward.
    rows = step.inside(formats[host.name] | outermost)
    # What is to be changed comes first.
    where = list(dict.fromkeys([*settings.anomaly_set_at, *lines]))
    return Detection(
        low=without_rows(step, rows, ANOMALY_REST.high),
        expected=without_rows(step, rows),
        high=without_rows(step, rows, ANOMALY_REST.low),
        where=[line for line in where if line != NO_LINE],
        change="torch.autograd.set_detect_anomaly(False)",
        assumes="no NaN is being searched for",
    )


FAULT = Fault(
    id="anomaly-detection",
    title="Anomaly detection is on",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(debug_settings.NO_ANOMALY_DETECTION,),
    always=True,
)
