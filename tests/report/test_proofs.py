"""Proofs as a terminal shows them."""

import io

import msgspec
from rich.console import Console

from boundby.model import Note
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding
from boundby.model.proof import Numerics, Outcome, Peak, Proof, Speedup
from boundby.report.proofs import ProofsReport, best_of, wants_time
from tests.diagnoses import full_diagnosis

FINE = Numerics(ok=True, why="loss of step 1 within 3 ppm")


def proof(treatment: str, *faults: str, speedup: float = 1.0, **known: object) -> Proof:
    return Proof(
        faults=list(faults),
        fixes=treatment.split(" + "),
        treatment=treatment,
        before_ns=[60e6, 58e6],
        after_ns=[60e6 / speedup],
        speedup=Speedup(low=0.95 * speedup, median=speedup, high=1.05 * speedup),
        numerics=FINE,
        change=f"# {treatment}",
        **known,  # type: ignore[arg-type]
    )


def shown(*proofs: Proof, findings: tuple[Finding, ...] = (), notes: tuple[Note, ...] = ()) -> str:
    diagnosis = msgspec.structs.replace(
        full_diagnosis(), proofs=list(proofs), findings=list(findings), notes=list(notes)
    )
    out = io.StringIO()
    Console(file=out, width=100, highlight=False).print(ProofsReport(diagnosis))
    return out.getvalue()


BOTH = proof(
    "autocast", "float32-products", "float32-activations", speedup=1.5, outcome=Outcome.KEPT
)
FUSED = proof("fused", "unfused-optimizer", speedup=1.2, outcome=Outcome.KEPT)


def test_proofs_end_no_line_with_blanks() -> None:
    lines = shown(BOTH, FUSED).splitlines()
    assert len(lines) > 3
    assert all(line == line.rstrip() for line in lines)


def test_larger_budget_is_suggested_if_it_may_decide_more() -> None:
    idle = proof("channels-last", "layout-copies", outcome=Outcome.SKIPPED)
    diagnosis = msgspec.structs.replace(full_diagnosis(), proofs=[idle])
    assert not wants_time(diagnosis)
    unclear = proof("fused", "unfused-optimizer", outcome=Outcome.INCONCLUSIVE, open=True)
    assert wants_time(msgspec.structs.replace(diagnosis, proofs=[unclear]))


def test_one_fix_for_two_faults_is_one_fix() -> None:
    assert not BOTH.combines
    together = proof("fused + tf32", "unfused-optimizer", "float32-products", outcome=Outcome.KEPT)
    assert together.combines
    text = shown(BOTH, FUSED)
    assert "60.0 ms -> 40.0 ms, 1.50x (1.42 to 1.58) with autocast, same results" in text
    assert "autocast for float32-products, float32-activations: kept" in text
    assert "together" not in text
    assert "rounds: alternating blocks" in text
    assert "changes to make in the script\n   # autocast" in text


def test_kept_combination_is_listed_before_single_fixes() -> None:
    together = proof(
        "autocast + fused",
        "float32-products",
        "unfused-optimizer",
        speedup=1.4,
        outcome=Outcome.KEPT,
    )
    assert best_of([BOTH, FUSED, together]) is together
    # The last is the result, though an earlier one looked faster in fewer runs.
    lucky = proof("autocast + tf32", "float32-products", speedup=1.9, outcome=Outcome.KEPT)
    assert best_of([BOTH, FUSED, lucky, together]) is together
    # One fix is not more for mending more faults.
    assert best_of([FUSED, BOTH]) is BOTH
    faster = msgspec.structs.replace(FUSED, speedup=Speedup(low=1.8, median=1.9, high=2.0))
    assert best_of([BOTH, faster]) is faster


def test_undecided_fixes_are_not_called_ineffective() -> None:
    words = "0.97x to 1.20x does not decide"
    still = proof("fused", "unfused-optimizer", outcome=Outcome.INCONCLUSIVE, why=words, open=True)
    assert "no fix was kept: 1 of 1 is undecided; a larger budget may decide" in shown(still)
    assert "for unfused-optimizer: inconclusive, 0.97x" in shown(still)
    assert "no gain" not in shown(still)
    settled = proof("fused", "unfused-optimizer", outcome=Outcome.NO_GAIN, why="it is slower")
    assert "no fix made the program faster" in shown(settled)


def test_larger_budget_is_not_advised_if_the_script_ended_by_itself() -> None:
    still = proof("fused", "unfused-optimizer", outcome=Outcome.INCONCLUSIVE, open=True)
    ended = Note(code="script-ended", text="the script ended after 3 steps")
    assert "more time" not in shown(still, notes=(ended,))
    diagnosis = msgspec.structs.replace(full_diagnosis(), proofs=[still], notes=[ended])
    assert not wants_time(diagnosis)


def test_final_check_without_time_differs_from_a_failed_fix() -> None:
    why = "no time was left for two processes of the script"
    final = proof("fused", "unfused-optimizer", outcome=Outcome.SKIPPED, why=why)
    assert "fused in fresh processes for unfused-optimizer: skipped" in shown(
        FUSED, msgspec.structs.replace(final, fresh=True)
    )


def test_untried_fixes_are_not_called_ineffective() -> None:
    skipped = proof("fused", "unfused-optimizer", outcome=Outcome.SKIPPED, why="no time")
    assert "no fix was tried" in shown(skipped)
    assert "no fix made the program faster" not in shown(skipped)


def test_fixes_that_were_not_tried_are_counted_apart_from_those_without_gain() -> None:
    settled = proof("fused", "unfused-optimizer", outcome=Outcome.NO_GAIN, why="it is slower")
    late = proof("autocast", "float32-products", outcome=Outcome.SKIPPED, open=True)
    assert "no fix was kept: 2 of 3 were not tried; a larger budget may decide" in shown(
        settled, late, late
    )
    unclear = proof("sdpa", "slow-attention", outcome=Outcome.INCONCLUSIVE, open=True)
    words = "no fix was kept: 1 of 3 is undecided, 1 of 3 was not tried; a larger budget may decide"
    assert words in shown(settled, unclear, late)
    note = Note(code="fixes-not-tried", text="without a finding, and not tried: fused")
    words = (
        "no fix was kept: fixes that no finding suggests were not tried; a larger budget may decide"
    )
    assert words in shown(settled, notes=(note,))


def test_headline_is_the_patched_script_in_fresh_processes() -> None:
    fresh = proof(
        "autocast", "float32-products", speedup=1.4, outcome=Outcome.KEPT, fresh=True, why="x"
    )
    assert best_of([BOTH, FUSED, fresh]) is fresh
    slower = msgspec.structs.replace(fresh, outcome=Outcome.NO_GAIN)
    assert best_of([BOTH, slower]) is None


def test_manual_steps_are_listed() -> None:
    saving = Estimate(low=1e6, expected=2e6, high=3e6)
    sync = Finding(fault="host-sync", group="overhead", saving_ns=saving, change="")
    text = shown(
        FUSED,
        findings=(sync,),
        notes=(Note(code="files-written", text="the script wrote files: a.pt"),),
    )
    assert "also found; fix by hand: host-sync" in text
    assert "! the script wrote files: a.pt" in text
    assert "fix by hand: host-sync" in shown(findings=(sync,))


def test_fixes_skipped_for_time_are_not_called_absent() -> None:
    note = Note(
        code="fixes-not-tried", text="not tried within the budget, without a finding: fused"
    )
    assert shown(notes=(note,)).startswith("no fix was tried")
    assert shown().startswith("no finding has a fix that boundby can apply")


def test_a_result_that_was_not_measured_as_a_patch_says_so() -> None:
    unmeasured = msgspec.structs.replace(
        FUSED, fresh=True, speedup=None, after_ns=[], outcome=Outcome.SKIPPED, why="no time"
    )
    assert "measured live, not as a patched script" in " ".join(shown(FUSED, unmeasured).split())
    assert "measured live" not in shown(FUSED)


def test_memory_has_a_column_only_where_it_was_measured() -> None:
    peak = Peak(before=2e9, after=1e9)
    assert "memory" not in shown(FUSED)
    assert "-50%" in shown(msgspec.structs.replace(FUSED, peak_bytes=peak))


def test_a_prediction_without_an_upper_limit_shows_none() -> None:
    predicted = Estimate(low=1.1, expected=1.34, high=100.0)
    measured = proof("one-thread", "openmp-spin", outcome=Outcome.NO_GAIN)
    unlimited = msgspec.structs.replace(measured, predicted=predicted)
    assert "1.34x (1.10 or more)" in " ".join(shown(unlimited, FUSED).split())
