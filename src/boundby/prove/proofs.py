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
    for one in candidates:
        if one.scope == "start":
            proofs.append(_start_fix_proof(one, processes, evidence.rulings.get((one.key,))))
        else:
            proof = step_fix_proof(one, evidence, candidates, processes.live_starts)
            if not is_hidden(one, proof, evidence):
                proofs.append(proof)
    chosen = [*evidence.chosen, *processes.chosen_starts]
    if len(chosen) > 1:
        proofs.append(_combined_proof(evidence, candidates, processes))
    if processes.final is not None and chosen:
        proofs.append(_final_proof(chosen, candidates, evidence, processes))
    return proofs


def is_hidden(one: Candidate, proof: Proof, evidence: Evidence) -> bool:
    """It was not requested, it did not take time either, and nothing is known of it."""
    ruled = ruling_of(one, None, evidence)
    took_time = ruled is not None and ruled.wants_time
    return one.without_finding and proof.outcome is Outcome.SKIPPED and not took_time


def chosen_fixes(
    evidence: Evidence, candidates: Sequence[Candidate], starts: Sequence[str] = ()
) -> list[ChosenFix]:
    known = {one.key: one for one in candidates}
    return [
        ChosenFix(
            fix=known[key].fix,
            change=_change(known[key], evidence),
            environment=known[key].environment,
            objects=evidence.objects.get(key, []),
        )
        for key in (*evidence.chosen, *starts)
    ]


def step_fix_proof(
    one: Candidate,
    evidence: Evidence,
    candidates: Sequence[Candidate],
    live_starts: Sequence[str],
) -> Proof:
    measured = comparisons_of(evidence, one.key)
    found = next((c for c in measured if c.against == BASELINE), measured[-1] if measured else None)
    is_chosen = one.key in evidence.chosen
    if is_chosen:
        found = _adding_comparison(evidence, one.key) or found
    replaced_by = next(
        (
            other.fix
            for other in candidates
            if other.key in evidence.chosen and not one.is_compatible_with([other])
        ),
        None,
    )
    outcome, why, log = _outcome(one, found, evidence, is_chosen, replaced_by)
    ruled = None if is_chosen else ruling_of(one, found, evidence)
    variant = found.variant if found is not None else (one.key,)
    return Proof(
        faults=list(one.faults),
        fixes=[one.fix],
        treatment=one.fix,
        against=_label(_names((*live_starts, *found.against), candidates)) if found else "",
        before_ns=list(found.before_ns) if found is not None else [],
        after_ns=list(found.after_ns) if found is not None else [],
        speedup=found.speedup if found is not None else None,
        predicted=one.predicted,
        peak_bytes=_peak(found),
        numerics=evidence.checked.get(variant),
        preparation_s=evidence.preparation_s.get(variant),
        outcome=outcome,
        why=why,
        change=_change(one, evidence),
        log=log,
        open=why == BUDGET_ENDED
        or (ruled is not None and ruled.wants_time)
        or (outcome is Outcome.INCONCLUSIVE and not _was_given_up(found, evidence)),
    )


def _was_given_up(found: Comparison | None, evidence: Evidence) -> bool:
    """Whether more time is not spent on it: the search has ended, and it looked no faster."""
    return found is not None and evidence.done and found.middle <= 1


def _adding_comparison(evidence: Evidence, key: str) -> Comparison | None:
    """The comparison after which a fix was added to the chosen ones."""
    at = evidence.chosen.index(key)
    variant = evidence.chosen[: at + 1]
    found = [
        one for one in evidence.comparisons if one.variant == variant and one.decision == "faster"
    ]
    return found[0] if found else None


def _outcome(
    one: Candidate,
    found: Comparison | None,
    evidence: Evidence,
    is_chosen: bool,
    replaced_by: str | None,
) -> tuple[Outcome, str, str | None]:
    if is_chosen:
        variant = found.variant if found is not None else (one.key,)
        numerics = evidence.checked.get(variant)
        return Outcome.KEPT, numerics.why if numerics is not None else "", None
    ruled = ruling_of(one, found, evidence)
    if ruled is not None:
        return ruled.outcome, ruled.why, ruled.log
    if found is None:
        return Outcome.SKIPPED, evidence.ended or BUDGET_ENDED, None
    speedup = found.speedup
    if found.decision == "faster" and found.variant not in evidence.checked:
        return Outcome.INCONCLUSIVE, _UNCHECKED, None
    if found.decision == "faster":
        why = "faster alone, but not together with the fixes already kept"
        if replaced_by is not None:
            why = f"faster, but {replaced_by} is faster still, and only one of them can be used"
        return Outcome.NO_GAIN, why, None
    if found.decision == "no gain":
        slower = found.middle < 1 and (speedup is None or speedup.high < 1)
        return Outcome.NO_GAIN, "it is slower" if slower else _interval(speedup), None
    if speedup is None:
        count = len(found.log_ratios)
        words = "1 round is" if count == 1 else f"{count} rounds are"
        return Outcome.INCONCLUSIVE, f"{words} too few to decide", None
    is_over = _was_given_up(found, evidence)
    more = "it is no faster on average, and was not measured further" if is_over else _MORE_TIME
    return Outcome.INCONCLUSIVE, f"{_interval(speedup)} includes no effect; {more}", None


def ruling_of(one: Candidate, found: Comparison | None, evidence: Evidence) -> Ruling | None:
    variants = [
        *([found.variant] if found is not None else []),
        (one.key,),
        *(variant for variant in evidence.rulings if variant[-1:] == (one.key,)),
    ]
    return next((evidence.rulings[each] for each in variants if each in evidence.rulings), None)


def _interval(speedup: Speedup | None) -> str:
    return f"{speedup.low:.2f}x to {speedup.high:.2f}x" if speedup is not None else ""


def _combined_proof(
    evidence: Evidence, candidates: Sequence[Candidate], processes: ProcessResults
) -> Proof:
    """The product of the speed-ups with which the chosen fixes were added."""
    chain = [
        one for key in evidence.chosen if (one := _adding_comparison(evidence, key)) is not None
    ]
    starts = [processes.starts[key] for key in processes.chosen_starts]
    ratios = [*(one.speedup for one in chain), *(one.speedup for one in starts)]
    speedup = _product([one for one in ratios if one is not None])
    last_start = starts[-1].after_ns if starts else []
    is_live_last = chain and len(processes.live_starts) == len(processes.chosen_starts)
    after = list(chain[-1].after_ns if is_live_last else last_start)
    fixes = {one.key: one for one in candidates}
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
        why="the product of the steps by which they were added",
        change="\n".join(one.change for one in changes),
    )


def _product(speedups: Sequence[Speedup]) -> Speedup | None:
    """The product of speed-ups measured one after the other, with independent errors."""
    if not speedups:
        return None
    middle = sum(math.log(one.median) for one in speedups)
    below = math.hypot(*(math.log(one.median / one.low) for one in speedups))
    above = math.hypot(*(math.log(one.high / one.median) for one in speedups))
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
    known = {one.key: one for one in candidates}
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
        why += _not_in_patch(chosen, known, evidence, processes)
    applied_keys = [key for key in chosen if key not in final.left_out] or chosen
    changes = chosen_fixes(evidence, candidates, processes.chosen_starts)
    applied_changes = [one for key, one in zip(chosen, changes, strict=True) if key in applied_keys]
    return Proof(
        faults=[fault for key in applied_keys for fault in known[key].faults],
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
        change="\n".join(one.change for one in applied_changes),
        log=final.log,
    )


def _not_in_patch(
    chosen: Sequence[str],
    known: Mapping[str, Candidate],
    evidence: Evidence,
    processes: ProcessResults,
) -> str:
    """What the patch does not contain: fixes applied from outside, or left out."""
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
    found = _adding_comparison(evidence, key) if key in evidence.chosen else None
    if found is None or found.speedup is None:
        return ""
    beside = _label([known[one].fix for one in found.against])
    return f", {found.speedup.median:.2f}x live" + (f" beside {beside}" if beside else "")


def _start_fix_proof(one: Candidate, processes: ProcessResults, ruled: Ruling | None) -> Proof:
    turns = processes.starts.get(one.key)
    if turns is None:
        outcome, why = Outcome.SKIPPED, f"it needs a new process; {processes.not_tried}"
        if ruled is not None:
            outcome, why = ruled.outcome, ruled.why
        return Proof(
            faults=list(one.faults),
            fixes=[one.fix],
            treatment=one.fix,
            predicted=one.predicted,
            outcome=outcome,
            why=why,
            change=one.change,
        )
    speedup = turns.speedup
    if turns.problem is not None:
        outcome = Outcome.SKIPPED if turns.late else Outcome.FAILED
        why = turns.problem
    elif one.key in processes.chosen_starts:
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
        faults=list(one.faults),
        fixes=[one.fix],
        treatment=one.fix,
        fresh=True,
        before_ns=turns.before_ns,
        after_ns=turns.after_ns,
        speedup=speedup,
        predicted=one.predicted,
        peak_bytes=Peak(before=turns.peak_before, after=turns.peak_after),
        outcome=outcome,
        why=why,
        change=one.change,
        log=turns.log,
        open=outcome is Outcome.INCONCLUSIVE,
    )


def _change(one: Candidate, evidence: Evidence) -> str:
    fix: Fix | None = next((fix for fix in FIXES if fix.name == one.fix), None)
    words = evidence.changes_made.get(one.key)
    if fix is not None and fix.written is not None and words:
        return fix.written(words)
    return one.change


def _names(variant: Variant | Sequence[str], candidates: Sequence[Candidate]) -> list[str]:
    known = {one.key: one.fix for one in candidates}
    return [known.get(key, key) for key in variant]


def _label(names: Sequence[str]) -> str:
    return " + ".join(names)


def _peak(found: Comparison | None) -> Peak:
    if found is None:
        return Peak()
    return Peak(before=found.peak_bytes_before, after=found.peak_bytes_after)
