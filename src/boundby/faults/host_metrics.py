"""Metrics are computed on the host in every step.

What it looks for
    Functions of scikit-learn, SciPy and other metric libraries that run in the step, and lines at
    which values of tensors are read one by one: `.item()`, `.tolist()`, `.numpy()`, `float(x)`. A
    loop that reads a value in most rounds, and makes no tensor that anything else in the step
    needs, counts with all of its lines.

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
from collections.abc import Collection, Iterator

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind
from boundby.model.assumptions.program_savings import HOST_METRICS_LEFT
from boundby.step.dataflow import Flow
from boundby.step.frames import costly_lines, frames_named, reads_of_values, times_by_line
from boundby.step.host_intervals import called_from, main_thread
from boundby.step.loops import looping_lines, rollout_rounds
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
_NUMBER = 8  # bytes, at most
_METRIC = "hits += (prediction == target).sum()  # whole tensors; read it when it is printed"
_VALUES = "values = x.tolist()  # one read of a whole tensor; or compute with tensors, unread"


def detect(step: StepView) -> Detection | None:
    times = times_by_line(step, metrics := frames_named(step, _METRICS))
    by_metrics, rows = list(times.values()), metrics.copy()
    # On a device step, reading values is `host-sync`.
    own = _lines_of_own_reads(step) if step.device == "cpu" else ()
    for line in _reading_lines(step) if own else ():
        if line not in own:
            continue
        at_line = rows_at(step, [line]) & ~_in_models(step)
        times[line] = max(times.get(line, 0.0), time_of_rows(step, at_line))
        rows |= at_line
    for in_loop in _loops_of_reads(step) if own else ():
        rows |= in_loop
        for line, ns in _times_at_lines(step, in_loop).items():
            times[line] = max(times.get(line, 0.0), ns)
    lines = costly_lines(step, times)
    if not lines:
        return None
    rows = step.inside(rows)
    return Detection(
        low=without_rows(step, rows, HOST_METRICS_LEFT.high),
        expected=without_rows(step, rows, HOST_METRICS_LEFT.value),
        high=without_rows(step, rows),
        where=lines[:_MOST_LINES],
        change=_METRIC if sum(by_metrics) > 0.5 * sum(times.values()) else _VALUES,
        assumes="the metric is not needed in every step, or whole tensors can be compared",
    )


def _lines_of_own_reads(step: StepView) -> set[str]:
    """Lines that read values themselves: a trainer reads its own, all at the line that calls it."""
    host, sources = step.timeline.host, step.timeline.sources
    reads = reads_of_values(step)
    if host.inside is not None:
        reads &= host.inside < 0
    return {sources[at] for at in called_from(host)[reads] if at >= 0}


def _loops_of_reads(step: StepView) -> Iterator[Mask]:
    """The rows of each loop that reads a value in most rounds and whose tensors stay in it."""
    host, flow = step.timeline.host, step.flow
    if flow is None:
        return
    reads = np.sort(host.start_ns[reads_of_values(step)])
    loops = [loop for loop in looping_lines(step) if loop.spans[1] and not loop.is_rollout]
    # Loops whose rounds overlap in time are lines of one body.
    loops.sort(key=lambda loop: loop.spans)
    until = 0
    for at, loop in enumerate(loops):
        if loop.spans[0] < until:
            continue
        first, until = loop.spans
        rounds = loop.rounds
        for other in loops[at + 1 :]:
            if other.spans[0] < until:
                until, rounds = max(until, other.spans[1]), max(rounds, other.rounds)
        if np.searchsorted(reads, until) - np.searchsorted(reads, first) < rounds // 2:
            continue
        in_loop = (host.start_ns >= first) & (host.start_ns < until)
        in_loop &= host.thread == main_thread(step.timeline)
        records = {i for i, op in enumerate(step.op_records) if op.row >= 0 and in_loop[op.row]}
        if not any(_leaves(flow, value, records) for at in records for value in flow.makes[at]):
            yield in_loop


def _leaves(flow: Flow, value: int, records: Collection[int]) -> bool:
    """Whether operators other than these read a value. A number in the place of a tensor is another
    value: numbers are put into memory outside of operators."""
    made = flow.values[value]
    return any(
        min(made.bytes, _NUMBER + 1) <= flow.reads[reader][value]
        for reader in made.readers
        if reader not in records
    )


def _times_at_lines(step: StepView, rows: Mask) -> dict[str, float]:
    called, sources = called_from(step.timeline.host), step.timeline.sources
    return {
        sources[at]: time_of_rows(step, rows & (called == at))
        for at in np.unique(called[rows]).tolist()
        if at >= 0
    }


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
    title="Values are read one by one, or metrics computed, on the host",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    yields_to=("looped-parameters", "distribution-checks"),
    # The same reads of the same lines.
    excludes=("host-sync", "python-in-step", "looped-samples", "looped-calls"),
)
