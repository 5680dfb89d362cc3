"""Turns measurements into proofs: one per fix, one for the combination, one for fresh processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boundby.fixes import FIXES, Fix
from boundby.model.proof import Outcome, Peak, Proof, Speedup
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import (
    BASELINE,
    Comparison,
    Evidence,
    Ruling,
    Variant,
    adding_comparison,
    chain_of,
    comparisons_of,
)
from boundby.prove.fresh import AlternatingRuns
from boundby.prove.sites import ChosenFix

BUDGET_ENDED = "the budget ended before it was tried"
_UNCHECKED = (
    "faster, but measuring ended before its results were compared; a larger budget allows it"
)
INTERRUPTED = "interrupted before it was tried"
_MORE_TIME = "a larger budget may decide"
_NOT_TOGETHER = "beside the fixes that were kept it is not decided; a larger budget may decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResults:
    """Results measured in whole processes of the script."""

    starts: Mapping[str, AlternatingRuns] = field(default_factory=dict)  # by fix of the start
    chosen_starts: Sequence[str] = ()
    live_starts: Sequence[str] = ()  # fixes applied in the live process in all of its comparisons
    final: AlternatingRuns | None = None
    manual: Mapping[str, str] = field(default_factory=dict)  # fixes not in the patch, and why
    not_tried: str = BUDGET_ENDED  # why


_NONE = ProcessResults()


def proofs_of(
    evidence: Evidence, candidates: Sequence[Candidate], processes: ProcessResults = _NONE
) -> list[Proof]:
    proofs = []
    for candidate in candidates:
        if candidate.scope == "start":
            proofs.append(
                _start_fix_proof(candidate, processes, evidence.rulings.get((candidate.key,)))
            )
        else:
            proof = step_fix_proof(candidate, evidence, candidates, processes.live_starts)
            if not is_hidden(candidate, proof, evidence):
                proofs.append(proof)
    chosen = [*evidence.chosen, *processes.chosen_starts]
    if len(chosen) > 1:
        proofs.append(_combined_proof(evidence, candidates, processes))
    if processes.final is not None and chosen:
        proofs.append(_final_proof(chosen, candidates, evidence, processes))
    return proofs


def is_hidden(candidate: Candidate, proof: Proof, evidence: Evidence) -> bool:
    """Whether the fix was neither requested nor suggested nor measured."""
    ruled = ruling_of(candidate, None, evidence)
    took_time = ruled is not None and ruled.wants_time
    return candidate.without_finding and proof.outcome is Outcome.SKIPPED and not took_time


def chosen_fixes(
    evidence: Evidence, candidates: Sequence[Candidate], starts: Sequence[str] = ()
) -> list[ChosenFix]:
    by_key = {candidate.key: candidate for candidate in candidates}
    return [
        ChosenFix(
            fix=by_key[key].fix,
            change=_change(by_key[key], evidence),
            environment=by_key[key].environment,
            objects=evidence.objects.get(key, []),
        )
        for key in (*evidence.chosen, *starts)
    ]


def step_fix_proof(
    candidate: Candidate,
    evidence: Evidence,
    candidates: Sequence[Candidate],
    live_starts: Sequence[str],
) -> Proof:
    measured = comparisons_of(evidence, candidate.key)
    comparison = next(
        (c for c in measured if c.against == BASELINE), measured[-1] if measured else None
    )
    is_chosen = candidate.key in evidence.chosen
    if is_chosen:
        comparison = adding_comparison(evidence, candidate.key) or comparison
    replaced_by = next(
        (
            other.fix
            for other in candidates
            if other.key in evidence.chosen and not candidate.is_compatible_with([other])
        ),
        None,
    )
    outcome, why, log = _outcome(candidate, comparison, evidence, is_chosen, replaced_by)
    ruled = None if is_chosen else ruling_of(candidate, comparison, evidence)
    variant = comparison.variant if comparison is not None else (candidate.key,)
    against = comparison.against if comparison is not None else BASELINE
    beside = [key for key in against if key in variant]
    replaced = [key for key in against if key not in variant]
    return Proof(
        faults=list(candidate.faults),
        fixes=[candidate.fix],
        treatment=candidate.fix,
        against=_label(_names((*live_starts, *beside), candidates)) if comparison else "",
        replaces=_label(_names(replaced, candidates)),
        before_ns=list(comparison.before_ns) if comparison is not None else [],
        after_ns=list(comparison.after_ns) if comparison is not None else [],
        speedup=comparison.speedup if comparison is not None else None,
        predicted=candidate.predicted,
        peak_bytes=_peak(comparison),
        numerics=evidence.checked.get(variant),
        preparation_s=evidence.preparation_s.get(variant),
        outcome=outcome,
        why=why,
        change=_change(candidate, evidence),
        log=log,
        open=why == BUDGET_ENDED
        or (ruled is not None and ruled.wants_time)
        or (outcome is Outcome.INCONCLUSIVE and not _was_given_up(comparison, evidence)),
    )


def _was_given_up(comparison: Comparison | None, evidence: Evidence) -> bool:
    """Whether it was given up: the search has ended, and it did not look faster."""
    return comparison is not None and evidence.done and comparison.middle <= 1


def _outcome(
    candidate: Candidate,
    comparison: Comparison | None,
    evidence: Evidence,
    is_chosen: bool,
    replaced_by: str | None,
) -> tuple[Outcome, str, str | None]:
    if is_chosen:
        variant = comparison.variant if comparison is not None else (candidate.key,)
        numerics = evidence.checked.get(variant)
        same = "same results: " if numerics is not None and numerics.ok else ""
        return Outcome.KEPT, same + (numerics.why if numerics is not None else ""), None
    ruled = ruling_of(candidate, comparison, evidence)
    if ruled is not None:
        return ruled.outcome, ruled.why, ruled.log
    if comparison is None:
        return Outcome.SKIPPED, evidence.ended or BUDGET_ENDED, None
    speedup = comparison.speedup
    if comparison.decision == "faster" and comparison.variant not in evidence.checked:
        return Outcome.INCONCLUSIVE, _UNCHECKED, None
    if comparison.decision == "faster":
        if replaced_by is not None:
            why = f"faster, but {replaced_by} is even faster, and only one of them can be applied"
            return Outcome.NO_GAIN, why, None
        if _is_decided_together(candidate.key, evidence):
            return Outcome.NO_GAIN, "faster alone, but not beside the fixes that were kept", None
        return Outcome.INCONCLUSIVE, f"faster alone; {_NOT_TOGETHER}", None
    if comparison.decision == "no gain":
        slower = comparison.middle < 1 and (speedup is None or speedup.high < 1)
        return Outcome.NO_GAIN, "it is slower" if slower else _interval(speedup), None
    if replaced_by is not None and comparison.decision == "open":
        why = f"{replaced_by} looks faster, and only one of them can be applied"
        return Outcome.NO_GAIN, why, None
    if speedup is None:
        count = len(comparison.log_ratios)
        words = "1 round is" if count == 1 else f"{count} rounds are"
        return Outcome.INCONCLUSIVE, f"{words} too few to decide", None
    is_over = _was_given_up(comparison, evidence)
    more = "not faster on average, and not measured further" if is_over else _MORE_TIME
    return Outcome.INCONCLUSIVE, f"{_interval(speedup)} includes no effect; {more}", None


def _is_decided_together(key: str, evidence: Evidence) -> bool:
    """Whether the fix was measured beside others that were kept, and gained nothing there."""
    beside = [one for one in comparisons_of(evidence, key) if one.against]
    return any(one.decision == "no gain" or evidence.done for one in beside)


def ruling_of(
    candidate: Candidate, comparison: Comparison | None, evidence: Evidence
) -> Ruling | None:
    variants = [
        *([comparison.variant] if comparison is not None else []),
        (candidate.key,),
        *(variant for variant in evidence.rulings if variant[-1:] == (candidate.key,)),
    ]
    return next((evidence.rulings[each] for each in variants if each in evidence.rulings), None)


def _interval(speedup: Speedup | None) -> str:
    return f"{speedup.low:.2f}x to {speedup.high:.2f}x" if speedup is not None else ""


def _combined_proof(
    evidence: Evidence, candidates: Sequence[Candidate], processes: ProcessResults
) -> Proof:
    """The product of the speed-ups with which the chosen fixes were added."""
    chain = chain_of(evidence)
    starts = [processes.starts[key] for key in processes.chosen_starts]
    ratios = [*(measured.speedup for measured in chain), *(measured.speedup for measured in starts)]
    speedup = _product([speedup for speedup in ratios if speedup is not None])
    last_start = starts[-1].after_ns if starts else []
    is_live_last = chain and len(processes.live_starts) == len(processes.chosen_starts)
    after = list(chain[-1].after_ns if is_live_last else last_start)
    fixes = {candidate.key: candidate for candidate in candidates}
    chosen = (*evidence.chosen, *processes.chosen_starts)
    changes = chosen_fixes(evidence, candidates, processes.chosen_starts)
    return Proof(
        faults=[fault for key in chosen for fault in fixes[key].faults],
        fixes=_names(chosen, candidates),
        treatment=_label(_names(chosen, candidates)),
        before_ns=[ns * speedup.median for ns in after] if speedup is not None else [],
        after_ns=after,
        speedup=speedup,
        peak_bytes=Peak(
            before=chain[0].peak_bytes_before if chain else None,
            after=chain[-1].peak_bytes_after if chain else None,
        ),
        numerics=evidence.checked.get(evidence.chosen),
        outcome=Outcome.KEPT,
        why="live: the product of the speed-ups with which they were added",
        change="\n".join(change.change for change in changes),
    )


def _product(speedups: Sequence[Speedup]) -> Speedup | None:
    """The product of speed-ups measured one after the other, with independent errors."""
    if not speedups:
        return None
    middle = sum(math.log(speedup.median) for speedup in speedups)
    below = math.hypot(*(math.log(speedup.median / speedup.low) for speedup in speedups))
    above = math.hypot(*(math.log(speedup.high / speedup.median) for speedup in speedups))
    return Speedup(
        low=math.exp(middle - below), median=math.exp(middle), high=math.exp(middle + above)
    )


def _final_proof(
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
    changes = chosen_fixes(evidence, candidates, processes.chosen_starts)
    applied_changes = [
        change for key, change in zip(chosen, changes, strict=True) if key in applied_keys
    ]
    return Proof(
        faults=[fault for key in applied_keys for fault in by_key[key].faults],
        fixes=_names(applied_keys, candidates),
        treatment=_label(_names(applied_keys, candidates)),
        fresh=True,
        before_ns=final.before_ns,
        after_ns=final.after_ns,
        speedup=speedup,
        peak_bytes=Peak(before=final.peak_before, after=final.peak_after),
        numerics=evidence.checked.get(evidence.chosen),
        outcome=outcome,
        why=why,
        change="\n".join(change.change for change in applied_changes),
        log=final.log if speedup is None else None,
    )


def _not_in_patch(
    chosen: Sequence[str],
    known: Mapping[str, Candidate],
    evidence: Evidence,
    processes: ProcessResults,
) -> str:
    """The fixes that the patch does not contain: fixes applied from outside, or left out."""
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
    beside = _label(
        [known[other].fix for other in comparison.against if other in comparison.variant]
    )
    return f", {comparison.speedup.median:.2f}x live" + (f" beside {beside}" if beside else "")


def _start_fix_proof(
    candidate: Candidate, processes: ProcessResults, ruled: Ruling | None
) -> Proof:
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
            f"{_interval(speedup)} includes no effect; {_MORE_TIME}",
        )
    else:
        outcome, why = Outcome.NO_GAIN, _interval(speedup)
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


def _change(candidate: Candidate, evidence: Evidence) -> str:
    fix: Fix | None = next((fix for fix in FIXES if fix.name == candidate.fix), None)
    words = evidence.changes_made.get(candidate.key)
    if fix is not None and fix.written is not None and words:
        return fix.written(words)
    return candidate.change


def _names(variant: Variant | Sequence[str], candidates: Sequence[Candidate]) -> list[str]:
    fix_names = {candidate.key: candidate.fix for candidate in candidates}
    return [fix_names.get(key, key) for key in variant]


def _label(names: Sequence[str]) -> str:
    return " + ".join(names)


def _peak(comparison: Comparison | None) -> Peak:
    if comparison is None:
        return Peak()
    return Peak(before=comparison.peak_bytes_before, after=comparison.peak_bytes_after)
