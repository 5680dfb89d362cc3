"""Proofs of what was measured in whole processes: fixes of the start, and the patched script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boundby.model.proof import Outcome, Peak, Proof, Speedup
from boundby.prove.candidate import Candidate
from boundby.prove.changes import changes_of, label_of, names_of
from boundby.prove.evidence import Evidence, Ruling, adding_comparison
from boundby.prove.fresh import AlternatingRuns

BUDGET_ENDED = "the budget ended before it was tried"
INTERRUPTED = "interrupted before it was tried"
MORE_TIME = "a larger budget may decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResults:
    """Results measured in whole processes of the script."""

    starts: Mapping[str, AlternatingRuns] = field(default_factory=dict)  # by fix of the start
    chosen_starts: Sequence[str] = ()
    live_starts: Sequence[str] = ()  # fixes applied in the live process in all of its comparisons
    final: AlternatingRuns | None = None
    manual: Mapping[str, str] = field(default_factory=dict)  # fixes not in the patch, and why
    not_tried: str = BUDGET_ENDED  # why
    words: Mapping[str, str] = field(default_factory=dict)  # changes in the words of a framework


def final_proof(
    chosen: Sequence[str],
    candidates: Sequence[Candidate],
    evidence: Evidence,
    processes: ProcessResults,
) -> Proof:
    final = processes.final
    assert final is not None
    by_key = {candidate.key: candidate for candidate in candidates}
    speedup = final.speedup
    if speedup is None:
        failed = final.problem is not None and not final.late
        outcome = Outcome.FAILED if failed else Outcome.SKIPPED
        why = final.problem or "no time was left for two processes of the script"
    elif speedup.high < 1:
        outcome, why = Outcome.NO_GAIN, "as a whole process it is slower"
    elif speedup.median <= 1:
        outcome, why = Outcome.INCONCLUSIVE, "whole processes differ by more than the gain"
    else:
        outcome, why = Outcome.KEPT, "the script and its patched copy, in fresh processes"
    if speedup is not None:
        why += _not_in_patch(chosen, by_key, evidence, processes)
    applied_keys = [key for key in chosen if key not in final.left_out] or chosen
    return Proof(
        faults=[fault for key in applied_keys for fault in by_key[key].faults],
        fixes=names_of(applied_keys, candidates),
        treatment=label_of(names_of(applied_keys, candidates)),
        fresh=True,
        patched=True,
        before_ns=final.before_ns,
        after_ns=final.after_ns,
        speedup=speedup,
        peak_bytes=Peak(before=final.peak_before, after=final.peak_after),
        numerics=evidence.checked.get(evidence.chosen),
        outcome=outcome,
        why=why,
        change=changes_of(applied_keys, candidates, evidence, processes.words),
        log=final.log if speedup is None else None,
    )


def _not_in_patch(
    chosen: Sequence[str],
    known: Mapping[str, Candidate],
    evidence: Evidence,
    processes: ProcessResults,
) -> str:
    """The fixes that the patch does not contain: applied from outside, or left out."""
    left_out = processes.final.left_out if processes.final is not None else {}
    outside = [
        f"{known[key].fix} ({why})"
        for key in chosen
        if key not in left_out and (why := processes.manual.get(known[key].fix)) is not None
    ]
    words = f"; not in the patch, applied from outside: {'; '.join(outside)}" if outside else ""
    for key, why in left_out.items():
        live = _live_speedup(key, evidence, known)
        words += f"; left out, to be written by hand: {known[key].fix}{live} ({why})"
    return words


def _live_speedup(key: str, evidence: Evidence, known: Mapping[str, Candidate]) -> str:
    comparison = adding_comparison(evidence, key) if key in evidence.chosen else None
    if comparison is None or comparison.speedup is None:
        return ""
    beside = label_of(
        [known[other].fix for other in comparison.against if other in comparison.variant]
    )
    return f", {comparison.speedup.median:.2f}x live" + (f" beside {beside}" if beside else "")


def start_fix_proof(candidate: Candidate, processes: ProcessResults, ruled: Ruling | None) -> Proof:
    runs = processes.starts.get(candidate.key)
    if runs is None:
        outcome, why = Outcome.SKIPPED, f"it needs a new process; {processes.not_tried}"
        if ruled is not None:
            outcome, why = ruled.outcome, ruled.why
        return Proof(
            faults=list(candidate.faults),
            fixes=[candidate.fix],
            treatment=candidate.fix,
            predicted=candidate.predicted,
            outcome=outcome,
            why=why,
            change=candidate.change,
        )
    speedup = runs.speedup
    if runs.problem is not None:
        outcome = Outcome.SKIPPED if runs.late else Outcome.FAILED
        why = runs.problem
    elif candidate.key in processes.chosen_starts:
        outcome, why = Outcome.KEPT, "it changes no arithmetic"
    elif speedup is not None and speedup.high < 1:
        outcome, why = Outcome.NO_GAIN, "it is slower"
    elif speedup is not None and speedup.low < 1 < speedup.high and speedup.median > 1:
        outcome, why = (
            Outcome.INCONCLUSIVE,
            f"{interval_of(speedup)} includes no effect; {MORE_TIME}",
        )
    else:
        outcome, why = Outcome.NO_GAIN, interval_of(speedup)
    return Proof(
        faults=list(candidate.faults),
        fixes=[candidate.fix],
        treatment=candidate.fix,
        fresh=True,
        before_ns=runs.before_ns,
        after_ns=runs.after_ns,
        speedup=speedup,
        predicted=candidate.predicted,
        peak_bytes=Peak(before=runs.peak_before, after=runs.peak_after),
        outcome=outcome,
        why=why,
        change=candidate.change,
        log=runs.log,
        open=outcome is Outcome.INCONCLUSIVE,
    )


def interval_of(speedup: Speedup | None) -> str:
    return f"{speedup.low:.2f}x to {speedup.high:.2f}x" if speedup is not None else ""
