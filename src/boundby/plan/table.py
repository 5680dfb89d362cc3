"""Predicts every row of a table of published measurements, and scores the predictions."""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.model.plan import PlanRow, PlanScore, PlanTable
from boundby.plan import assumptions, collective_rows, serving_rows
from boundby.plan.result import memory_bytes, step_range
from boundby.plan.row_values import Row, RowError, cleaned, prefix
from boundby.plan.simulated import simulated_step
from boundby.plan.training_rows import Case, Memory, case_of

# Layouts of one job: fewer rows than this have no rank worth reporting.
_LEAST_RANKED = 4


def predict_file(path: str) -> PlanTable:
    """Predictions for each row of a CSV file with the columns of a known table."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows = [cleaned(row, index) for index, row in enumerate(reader, start=1)]
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise BoundbyError(f"{path} is no table in CSV format") from None
    predict = _predictor(rows[0] if rows else {}, path)
    found: list[PlanRow] = []
    memory: list[PlanRow] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            both = predict(row)
        except (RowError, BoundbyError) as error:
            skipped[str(error)] += 1
            continue
        found += [both.time] if both.time else []
        memory += [both.memory] if both.memory else []
        if not both.time:
            skipped["no measured step time"] += 1
    if not found and not memory:
        reasons = "; ".join(list(skipped)[:3])
        raise BoundbyError(f"{path} has no row that can be predicted: {reasons or 'it is empty'}")
    return PlanTable(
        file=path,
        rows=found,
        scores=scores(found) if found else [],
        memory=memory,
        memory_scores=scores(memory) if memory else [],
        skipped=dict(skipped),
    )


class _Predicted(NamedTuple):
    """The prediction for a row: its time or rate, and its memory."""

    time: PlanRow | None
    memory: PlanRow | None = None


def _predictor(row: Row, path: str) -> Callable[[Row], _Predicted]:
    if "measured_step_s" in row or "step_ms" in row:
        return _training_row
    if "metric" in row and "value" in row:
        return _serving_row
    if "collective" in row and "algbw_gbps" in row:
        return lambda one: _Predicted(collective_rows.predict(one))
    raise BoundbyError(
        f"{path} is no table of measurements: it needs a column measured_step_s, step_ms, "
        "metric and value, or collective and algbw_gbps"
    )


def _training_row(row: Row) -> _Predicted:
    case = case_of(row)
    return _Predicted(
        _step_row(row, case, case.measured_s) if case.measured_s else None,
        _memory_row(case, case.memory) if case.memory else None,
    )


def _memory_row(case: Case, measured: Memory) -> PlanRow:
    held = memory_bytes(case.config, case.mesh, case.job) / measured.unit_bytes
    wide = 1 + assumptions.MEMORY_UNCERTAINTY
    return PlanRow(
        id=case.id,
        source=case.source,
        predicted=Estimate(low=held / wide, expected=held, high=held * wide),
        measured=measured.value,
        unit=measured.unit,
    )


def _step_row(row: Row, case: Case, measured_s: float) -> PlanRow:
    job = case.job
    step = simulated_step(case.config, case.mesh, job, case.target)
    unit, scale = ("ms", 1e-6) if "step_ms" in row else ("s", 1e-9)
    span = step_range(step, case.config)
    return PlanRow(
        id=case.id,
        source=case.source,
        predicted=Estimate(
            low=span.low * scale, expected=span.expected * scale, high=span.high * scale
        ),
        measured=measured_s * 1e9 * scale,
        unit=unit,
        group=f"{case.source} {case.config} {case.target.name} {job.precision} "
        f"{job.sequence} {case.mesh.chips} {job.batch:g}",
        layout=f"{case.mesh} {job.micro_batch:g} {job.recompute}",
    )


def _serving_row(row: Row) -> _Predicted:
    case = serving_rows.case_of(row)
    expected = serving_rows.predicted(case)
    steady = case.metric in ("decode_tokens_per_s", "tpot_ms")
    wide = 1 + (assumptions.SERVE_UNCERTAINTY if steady else assumptions.SERVER_UNCERTAINTY)
    source = row.get("source") or prefix(row.get("id") or "")
    found = PlanRow(
        id=row.get("id") or "",
        source=source,
        predicted=Estimate(low=expected / wide, expected=expected, high=expected * wide),
        measured=case.value,
        unit=serving_rows.UNITS[case.metric],
        group=f"{source} {case.config.name} {case.target.name} {case.metric}",
        kind=_kind(case),
    )
    return _Predicted(found)


def _kind(case: serving_rows.ServingCase) -> str:
    """The kind of a row; rows of a kind are scored together across sources."""
    if case.metric != "decode_tokens_per_s":
        return case.metric
    if case.service.batch > 1:
        return "decode, batches"
    return "decode, batch 1, " + ("one chip" if case.service.tensor == 1 else "tensor parallel")


def scores(rows: list[PlanRow]) -> list[PlanScore]:
    """Over all rows, by source, and over the sources that no constant was fitted on."""
    sources = dict.fromkeys(row.source for row in rows)
    found = [_score("all", rows)]
    fitted = [row for row in rows if row.source in assumptions.FIT_SOURCES]
    if fitted and len(fitted) < len(rows):
        held = [row for row in rows if row.source not in assumptions.FIT_SOURCES]
        found += [_score("sources fitted on", fitted), _score("other sources", held)]
    kinds = dict.fromkeys(row.kind for row in rows if row.kind)
    found += [_score(kind, [row for row in rows if row.kind == kind]) for kind in kinds]
    return found + [
        _score(source, [row for row in rows if row.source == source]) for source in sources
    ]


def _score(name: str, rows: list[PlanRow]) -> PlanScore:
    ratios = [row.predicted.expected / row.measured for row in rows]
    inside = [row.predicted.low <= row.measured <= row.predicted.high for row in rows]
    return PlanScore(
        name=name,
        rows=len(rows),
        mean_error=statistics.mean(abs(ratio - 1) for ratio in ratios),
        bias=statistics.mean(ratios) - 1,
        coverage=statistics.mean(inside),
        rank_correlation=_rank(rows),
    )


def _rank(rows: list[PlanRow]) -> float | None:
    """Spearman's rank correlation of the layouts of one job, averaged over jobs by their layouts.

    A layout measured more than once counts once, with the median.
    """
    jobs: dict[str, dict[str, list[PlanRow]]] = {}
    for row in rows:
        jobs.setdefault(row.group, {}).setdefault(row.layout or row.id, []).append(row)
    weighted, weight = 0.0, 0
    for layouts in jobs.values():
        predicted = [same[0].predicted.expected for same in layouts.values()]
        measured = [statistics.median(row.measured for row in same) for same in layouts.values()]
        if len(layouts) >= _LEAST_RANKED and len(set(predicted)) > 1 and len(set(measured)) > 1:
            weighted += spearman(predicted, measured) * len(layouts)
            weight += len(layouts)
    return weighted / weight if weight else None


def spearman(first: Iterable[float], second: Iterable[float]) -> float:
    """Correlation of ranks; equal values share their mean rank."""

    def ranks(values: Iterable[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        array = np.asarray(list(values), dtype=np.float64)
        _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])
