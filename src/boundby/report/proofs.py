"""Proofs for a terminal: predicted beside measured speed-ups, and what was kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from boundby.model import units
from boundby.model.diagnosis import Diagnosis
from boundby.model.estimate import Estimate
from boundby.model.proof import Outcome, Proof, Speedup
from boundby.report.layout import Trimmed

_COLOURS = {
    Outcome.KEPT: "green",
    Outcome.NO_GAIN: "bright_black",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.UNVERIFIED: "yellow",
    Outcome.WRONG_NUMBERS: "red",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "bright_black",
}

_NOTHING = "no finding has a fix that boundby can apply"
# Notes that say why there is no proof.
NOT_TRIED = frozenset({"no-fix-tried", "fixes-not-tried"})
# The script ended or failed by itself: more time decides nothing.
_SCRIPT_ENDED = "script-ended"
# A predicted range that ends above this includes that the whole step is saved.
_UNBOUNDED = 50.0
_ROUNDS = "measured: with its 95% interval; rounds: alternating blocks of steps or fresh processes"


class ProofsReport:
    """Renders the proofs of a `Diagnosis`; computes nothing that is not a median."""

    def __init__(self, diagnosis: Diagnosis, *, alone: bool = True) -> None:
        """`alone`: the rest of the diagnosis is not shown, so its notes are added."""
        self._diagnosis = diagnosis
        self._alone = alone

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        proofs = self._diagnosis.proofs
        if not proofs:
            untried = any(note.code in NOT_TRIED for note in self._diagnosis.notes)
            yield Text("no fix was tried" if untried else _NOTHING)
            yield from self._last()
            return
        yield final_line(self._diagnosis)
        yield Padding(_table(proofs), (1, 0, 0, 0))
        if any(proof.after_ns for proof in proofs):
            yield Padding(Text(_ROUNDS, style="dim"), (0, 0, 1, 0))
        yield from _reasons(proofs)
        best = best_of(proofs)
        if best is not None:
            yield Text()
            yield Text("changes to make in the script", style="bold")
            for line in best.change.splitlines():
                yield Text(f"   {line}", style="cyan")
        yield from self._last()

    def _last(self) -> Iterator[Text]:
        """Findings to fix by hand, and notes."""
        if not self._alone:
            return
        proven = {fault for proof in self._diagnosis.proofs for fault in proof.faults}
        by_hand = [
            finding.fault
            for finding in self._diagnosis.findings
            if finding.fault not in proven and not finding.provable
        ]
        if by_hand:
            names = ", ".join(by_hand)
            yield Text(f"also found; fix by hand: {names} (boundby explain NAME)", "dim")
        for note in self._diagnosis.notes:
            yield Text.assemble(("! ", "yellow"), note.text)


def wants_time(diagnosis: Diagnosis) -> bool:
    """Whether a larger budget may decide some of them."""
    if any(note.code == _SCRIPT_ENDED for note in diagnosis.notes):
        return False
    untried = any(note.code in NOT_TRIED for note in diagnosis.notes)
    return untried or any(proof.open for proof in diagnosis.proofs)


def best_of(proofs: list[Proof]) -> Proof | None:
    """The kept proof: of fresh processes, otherwise of all fixes together, otherwise the best
    single one."""
    final = [proof for proof in proofs if proof.fresh and proof.why and _is_final(proof, proofs)]
    if final and final[-1].speedup is not None:
        return final[-1] if final[-1].outcome is Outcome.KEPT else None
    kept = [
        proof for proof in proofs if proof.outcome is Outcome.KEPT and proof.speedup is not None
    ]
    together = [proof for proof in kept if proof.combines]
    return max(together[-1:] or kept, key=lambda one: _median(one.speedup), default=None)


def _is_final(proof: Proof, proofs: list[Proof]) -> bool:
    """Whether it is the last one, which measures the combination in fresh processes."""
    return proof is proofs[-1]


def final_line(diagnosis: Diagnosis) -> Text:
    proofs = diagnosis.proofs
    best = best_of(proofs)
    if best is None or best.speedup is None:
        has_more = any(note.code in NOT_TRIED for note in diagnosis.notes)
        more = "; a larger budget may decide" if wants_time(diagnosis) else ""
        return Text(_without_result(proofs, has_more=has_more, more=more), style="bold")
    after = statistics.median(best.after_ns)
    # The baseline of the same time: on a shared machine earlier baselines may differ.
    before = after * best.speedup.median
    return Text.assemble(
        (f"{units.time(before)} -> {units.time(after)}, {_speedup(best.speedup)}", "bold green"),
        f" with {best.treatment}" if best.treatment else "",
        ", same results within tolerance" if best.numerics and best.numerics.ok else "",
        "; measured live, not as a patched script" if _is_unchecked(proofs) else "",
    )


def _is_unchecked(proofs: list[Proof]) -> bool:
    """Whether the patched script was to be measured in fresh processes, and was not."""
    return proofs[-1].fresh and proofs[-1].speedup is None


def _without_result(proofs: list[Proof], *, has_more: bool, more: str) -> str:
    """The outcome where no fix was kept: how many are undecided, and how many were not tried.

    `has_more`: there were others, without a finding, that were not tried either; `more`: what
    a larger budget may do.
    """
    tried = [proof for proof in proofs if proof.outcome is not Outcome.SKIPPED]
    if not tried:
        return "no fix was tried"
    undecided, untried = sum(proof.open for proof in tried), len(proofs) - len(tried)
    counts = []
    if undecided:
        counts.append(f"{undecided} of {len(proofs)} {'is' if undecided == 1 else 'are'} undecided")
    if untried:
        were = "was" if untried == 1 else "were"
        counts.append(f"{untried} of {len(proofs)} {were} not tried")
    if has_more:
        counts.append("fixes that no finding suggests were not tried")
    if not counts:
        return "no fix made the program faster"
    return f"no fix was kept: {', '.join(counts)}{more}"


def _table(proofs: list[Proof]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("fix", overflow="fold")
    has_memory = any(_memory(proof) != "-" for proof in proofs)
    for heading in ("predicted", "measured", "rounds", *["memory"] * has_memory):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for proof in proofs:
        table.add_row(
            Text.assemble((proof.treatment, "bold"), (proof.setting, "dim")),
            _promised(proof.predicted),
            _speedup(proof.speedup) if proof.speedup else "-",
            f"{len(proof.after_ns)}" + " fresh" * proof.fresh,
            *[_memory(proof)] * has_memory,
            _outcome(proof),
        )
    return table


def _outcome(proof: Proof) -> Text:
    return Text(proof.outcome.value, style=_COLOURS[proof.outcome])


def _reasons(proofs: list[Proof]) -> list[Text]:
    return [
        Text.assemble(
            (proof.treatment, "bold"),
            (proof.setting, "dim"),
            (f" for {', '.join(dict.fromkeys(proof.faults))}: ", "dim"),
            _outcome(proof),
            f", {proof.why}" if proof.why else "",
            (f" (log: {proof.log})" if proof.log else "", "dim"),
        )
        for proof in proofs
    ]


def _speedup(speedup: Speedup) -> str:
    return f"{units.times(speedup.median)} ({speedup.low:.2f} to {speedup.high:.2f})"


def _promised(predicted: Estimate | None) -> str:
    if predicted is None:
        return "-"
    most = f"to {predicted.high:.2f}" if predicted.high < _UNBOUNDED else "or more"
    return f"{units.times(predicted.expected)} ({predicted.low:.2f} {most})"


def _memory(proof: Proof) -> str:
    before, after = proof.peak_bytes.before, proof.peak_bytes.after
    return f"{after / before - 1:+.0%}" if before and after else "-"


def _median(speedup: Speedup | None) -> float:
    return speedup.median if speedup is not None else 0.0
