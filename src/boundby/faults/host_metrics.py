"""Metrics are computed on the host in every step.

What it looks for
    Functions of scikit-learn, SciPy and other metric libraries that run in the step, and lines at
    which values of tensors are read one by one: `.item()`, `.tolist()`, `.numpy()`, `float(x)`.

Why it costs time
    Each value that is read costs a call of Python, a dispatch and, on a GPU, a wait for all that
    was issued before. Metrics of one batch are noise; over an epoch they are needed once.

What to change
    Compute metrics with torch operators on whole tensors: `hits += (pred == y).sum()`, and read the
    sum when it is printed. Keep predictions (`preds.append(logits.detach())`) and call the metric
    once for all of them.

When it does not help
    When the value decides what the step does next.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind, Phase
from boundby.model.assumptions.savings import HOST_METRICS_LEFT
from boundby.step.frames import costly_lines, frames_named, times_by_line
from boundby.step.host_intervals import called_from
from boundby.step.model import StepView
from boundby.step.nesting import Mask, nearest
from boundby.step.rows import rows_at, time_of_rows, without_rows

_METRICS = re.compile(
    r"(?:^|/)(?:sklearn/metrics|scipy/stats|torchmetrics|torcheval|evaluate|seqeval|sacrebleu"
    r"|rouge_score|nltk/(?:translate|metrics)|jiwer|pycocotools)/"
)
# Functions of tensors: numpy calls functions of these names on arrays and on its own scalars.
_READS = re.compile(
    r"^<built-in method (?:item|tolist|numpy|__float__|__int__) of (?!numpy\b|builtins\b)"
)
_READ_OPERATORS = ("aten::item", "aten::is_nonzero")
_LIBRARY = re.compile(r"(?:^|/)torch/")
# A line that reads one value per step logs a loss; one that reads this many loops over samples.
_FEWEST_READS = 4
_MOST_LINES = 4


def detect(step: StepView) -> Detection | None:
    times = times_by_line(step, metrics := frames_named(step, _METRICS))
    rows = metrics.copy()
    # On a device step, reading values is `host-sync`.
    for line in _reading_lines(step) if step.device == "cpu" else ():
        at_line = rows_at(step, [line]) & ~_in_models(step)
        times[line] = max(times.get(line, 0.0), time_of_rows(step, at_line))
        rows |= at_line
    lines = costly_lines(step, times)
    if not lines:
        return None
    rows = step.inside(rows)
    return Detection(
        low=without_rows(step, rows, 0.4),
        expected=without_rows(step, rows, HOST_METRICS_LEFT.value),
        high=without_rows(step, rows),
        where=lines[:_MOST_LINES],
        change="hits += (prediction == target).sum()  # whole tensors; read it when it is printed",
        assumes="the metric is not needed in every step, or whole tensors can be compared",
    )


def _in_models(step: StepView) -> Mask:
    """Rows of models: a line that reads a loss may call the model as well."""
    host, names = step.timeline.host, step.timeline.names
    modules = np.array([name.startswith("nn.Module: ") for name in names] or [False])
    return step.inside_both_ways((host.kind == HostKind.PYTHON) & modules[host.name])


def _reading_lines(step: StepView) -> list[str]:
    """Lines of the script that read values of tensors one by one."""
    host, timeline = step.timeline.host, step.timeline
    operators = np.array([name in _READ_OPERATORS for name in timeline.names] or [False])
    functions = np.array([bool(_READS.search(name)) for name in timeline.names] or [False])
    library = np.array([bool(_LIBRARY.search(name)) for name in timeline.names] or [False])
    is_read = ((host.kind == HostKind.OP) & operators[host.name]) | (
        (host.kind == HostKind.PYTHON) & functions[host.name]
    )
    # A read inside a library is not the script's: clipping, distributions, an optimizer's step
    # counter.
    inside: Mask = nearest(host.parent, (host.kind == HostKind.PYTHON) & library[host.name]) >= 0
    loads = nearest(host.parent, host.kind == HostKind.DATA) >= 0
    phases = (host.phase != Phase.OPTIMIZER) & (host.phase != Phase.BACKWARD)
    chosen = is_read & ~inside & ~loads & phases
    # The operator inside the function is the same read.
    around = np.append(nearest(host.parent, chosen), -1)[host.parent]
    chosen &= around < 0
    called = called_from(host)
    counts = Counter(int(at) for at in called[chosen] if at >= 0)
    return [timeline.sources[at] for at, count in counts.items() if count >= _FEWEST_READS]


FAULT = Fault(
    id="host-metrics",
    title="Metrics are computed on the host",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    yields_to=("looped-parameters", "distribution-checks"),
    excludes=("host-sync", "python-in-step"),
)
