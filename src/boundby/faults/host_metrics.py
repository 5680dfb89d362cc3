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
    When the value decides what the step does next, as an agent's action does: reads in loops that
    call the model in each round are not counted.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind
from boundby.model.assumptions.program_savings import HOST_METRICS_LEFT
from boundby.step.frames import costly_lines, frames_named, reads_of_values, times_by_line
from boundby.step.host_intervals import called_from
from boundby.step.loops import rollout_rounds
from boundby.step.model import StepView
from boundby.step.nesting import Mask
from boundby.step.rows import rows_at, time_of_rows, without_rows

_METRICS = re.compile(
    r"(?:^|/)(?:sklearn/metrics|scipy/stats|torchmetrics|torcheval|evaluate|seqeval|sacrebleu"
    r"|rouge_score|nltk/(?:translate|metrics)|jiwer|pycocotools)/"
)
# A line that reads one value per step logs a loss; one that reads this many loops over samples.
_FEWEST_READS = 4
_MOST_LINES = 4  # display limit


def detect(step: StepView) -> Detection | None:
    times = times_by_line(step, metrics := frames_named(step, _METRICS))
    rows = metrics.copy()
    # On a device step, reading values is `host-sync`.
    own = _lines_of_own_reads(step) if step.device == "cpu" else ()
    for line in _reading_lines(step) if own else ():
        if line not in own:
            continue
        at_line = rows_at(step, [line]) & ~_in_models(step)
        times[line] = max(times.get(line, 0.0), time_of_rows(step, at_line))
        rows |= at_line
    lines = costly_lines(step, times)
    if not lines:
        return None
    rows = step.inside(rows)
    return Detection(
        low=without_rows(step, rows, HOST_METRICS_LEFT.high),
        expected=without_rows(step, rows, HOST_METRICS_LEFT.value),
        high=without_rows(step, rows),
        where=lines[:_MOST_LINES],
        change="hits += (prediction == target).sum()  # whole tensors; read it when it is printed",
        assumes="the metric is not needed in every step, or whole tensors can be compared",
    )


def _lines_of_own_reads(step: StepView) -> set[str]:
    """Lines that read values themselves: a trainer reads its own, all at the line that calls it."""
    host, sources = step.timeline.host, step.timeline.sources
    reads = reads_of_values(step)
    if host.inside is not None:
        reads &= host.inside < 0
    return {sources[at] for at in called_from(host)[reads] if at >= 0}


def _in_models(step: StepView) -> Mask:
    """Rows of models: a line that reads a loss may call the model as well."""
    host, names = step.timeline.host, step.timeline.names
    modules = np.array([name.startswith("nn.Module: ") for name in names] or [False])
    return step.inside_both_ways((host.kind == HostKind.PYTHON) & modules[host.name])


def _reading_lines(step: StepView) -> list[str]:
    """Lines of the script that read values of tensors one by one; in a loop that calls the model
    in each round, those that do so many times a round."""
    called, sources = called_from(step.timeline.host), step.timeline.sources
    reads, rounds = np.flatnonzero(reads_of_values(step)), rollout_rounds(step)
    counts = Counter(int(at) for at in called[reads] if at >= 0)
    of_rounds = {int(called[row]): int(rounds[row]) for row in reads}
    return [
        sources[at]
        for at, count in counts.items()
        if count >= _FEWEST_READS * max(1, of_rounds[at])
    ]


FAULT = Fault(
    id="host-metrics",
    title="Metrics are computed on the host",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    yields_to=("looped-parameters", "distribution-checks"),
    # The same reads of the same lines.
    excludes=("host-sync", "python-in-step", "looped-samples", "looped-calls"),
)
