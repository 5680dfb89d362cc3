"""Results of the final check, on simulated processes."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boundby.model.proof import Numerics, Outcome
from boundby.prove import fresh
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import BASELINE, Comparison, Evidence, Ruling
from boundby.prove.fresh import (
    AlternatingRuns,
    FreshProcesses,
    ProcessSetup,
    error_of_median,
)
from boundby.prove.launch import ProcessResult
from boundby.prove.process_proofs import ProcessResults
from boundby.prove.proofs import proofs_of
from tests.prove.simulated import Simulated, candidate

CASTS, GRAPHS = candidate("casts"), candidate("graphs", preparation_s=5.0)
AS_IT_IS = ProcessSetup(name="the script as it is")
PATCHED = ProcessSetup(
    name="the patched script",
    variant=(GRAPHS.key,),
    sources={"a.py": "b.py"},
    drop_failing_fixes=True,
)
Process = Callable[[tuple[str, ...], bool], Evidence | str]


def alternate(process: Process, monkeypatch: pytest.MonkeyPatch) -> AlternatingRuns:
    """`process`: what one measures with a variant, patched or not, or why it failed."""

    def launch(setting: Any, spec: Mapping[str, Any], **_: Any) -> ProcessResult:
        found = process(spec["timed"]["variant"], bool(spec["sources"]))
        failed = found if isinstance(found, str) else None
        result = None if isinstance(found, str) else msgspec.msgpack.encode(found)
        return ProcessResult(
            problem=failed, late=False, log=Path("log"), result=result, written_files=[]
        )

    monkeypatch.setattr(fresh, "launch", launch)
    processes: Any = FreshProcesses(
        setting=None,  # type: ignore[arg-type]
        candidates=[CASTS, GRAPHS],
        place=Path,
        ends_at=float("inf"),
    )
    turns: AlternatingRuns = processes.alternate(AS_IT_IS, PATCHED)
    return turns


def measured(ns: float, why: str | None = None) -> Evidence:
    """`why`: the graphs were left out."""
    return Evidence(timed_ns=[ns], left_out={GRAPHS.key: why} if why is not None else {})


def final_proof(turns: AlternatingRuns) -> Any:
    program = Simulated({"casts": 3.0, "graphs": 1.25}, block_sd=0.001)
    every = [CASTS, GRAPHS]
    evidence = program.search(every)
    assert evidence.chosen == (CASTS.key, GRAPHS.key)
    manual = {"graphs": "it cannot be written as a patch"}
    return proofs_of(evidence, every, ProcessResults(final=turns, manual=manual))[-1]


def test_fix_without_gain_at_the_end_gets_no_more_time() -> None:
    casts = candidate("casts")
    slower = Comparison(variant=(casts.key,), against=(), log_ratios=[-0.3, 0.2, -0.1, 0.05])
    (proof,) = proofs_of(Evidence(comparisons=[slower], done=True), [casts])
    assert proof.outcome is Outcome.INCONCLUSIVE
    assert not proof.open
    assert "not faster on average" in proof.why
    failed = {BASELINE: Ruling(outcome=Outcome.FAILED, why="the program as it is")}
    (proof,) = proofs_of(Evidence(comparisons=[slower], rulings=failed), [casts])
    assert proof.open


def test_headline_covers_fixes_in_the_patched_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def process(variant: tuple[str, ...], patched: bool) -> Evidence:
        if not patched:
            return measured(300.0)
        return measured(100.0, why="it found nothing to change") if variant else measured(100.0)

    turns = alternate(process, monkeypatch)
    final = final_proof(turns)
    assert final.outcome is Outcome.KEPT
    assert final.treatment == "casts"
    assert final.change == CASTS.change
    assert final.speedup.median == pytest.approx(3.0)
    assert "by hand: graphs, 1.25x live beside casts (it found nothing to change)" in final.why


def test_failing_external_fix_is_retried_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def process(variant: tuple[str, ...], patched: bool) -> Evidence | str:
        return "no memory" if variant else measured(100.0 if patched else 300.0)

    turns = alternate(process, monkeypatch)
    assert turns.left_out == {GRAPHS.key: "no memory"}
    assert len(turns.after_ns) >= 2
    assert final_proof(turns).outcome is Outcome.KEPT


def test_external_fixes_are_part_of_the_headline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = alternate(lambda variant, patched: measured(80.0 if patched else 300.0), monkeypatch)
    final = final_proof(turns)
    assert final.treatment == "casts + graphs"
    assert "applied from outside: graphs (it cannot be written as a patch)" in final.why


def test_failing_patched_copy_fails_the_final_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = alternate(
        lambda variant, patched: "NameError: x" if patched else measured(300.0), monkeypatch
    )
    final = final_proof(turns)
    assert (final.outcome, final.why) == (Outcome.FAILED, "NameError: x")


def test_live_results_name_their_start_fixes() -> None:
    workers = Candidate(key="loading/workers", faults=("loading",), change="w", scope="start")
    fused = Candidate(key="optimizer/fused", faults=("optimizer",), change="f")
    evidence = Evidence(
        comparisons=[
            Comparison(
                variant=(fused.key,),
                against=(),
                log_ratios=[0.2] * 4,
                before_ns=[50.0] * 4,
                after_ns=[41.0] * 4,
            )
        ],
        checked={(fused.key,): Numerics(ok=True, why="")},
        chosen=(fused.key,),
    )
    processes = ProcessResults(
        starts={workers.key: AlternatingRuns(before_ns=[100.0, 100.0], after_ns=[50.0, 50.0])},
        chosen_starts=[workers.key],
        live_starts=[workers.key],
    )
    _, single, combined = proofs_of(evidence, [workers, fused], processes)
    assert single.against == "workers"
    assert combined.speedup is not None
    assert combined.speedup.median == pytest.approx(2 * math.exp(0.2))
    # The last steps measured are those with everything applied.
    assert combined.after_ns == [41.0] * 4


def test_faster_fix_whose_results_were_not_compared_in_time_is_undecided() -> None:
    casts = candidate("casts")
    faster = Comparison(variant=(casts.key,), against=BASELINE, log_ratios=[0.3, 0.3, 0.3])
    (proof,) = proofs_of(Evidence(comparisons=[faster], out_of_time=True), [casts])
    assert proof.outcome is Outcome.INCONCLUSIVE
    assert "before its results were compared" in proof.why


def test_final_check_that_the_budget_ended_is_skipped() -> None:
    turns = AlternatingRuns(problem="the budget ended while it ran", late=True)
    assert final_proof(turns).outcome is Outcome.SKIPPED


def test_two_processes_decide_nothing_if_they_or_their_steps_differ() -> None:
    def low(before_ns: list[float], step_error: float = 0.0) -> float:
        runs = AlternatingRuns(before_ns=before_ns, after_ns=[90.0, 90.0], step_error=step_error)
        assert runs.speedup is not None
        return runs.speedup.low

    assert low([105.0, 105.0]) > 1.02
    assert low([90.0, 120.0]) < 1
    assert low([105.0, 105.0], step_error=0.1) < 1


def test_three_processes_that_differ_have_a_wide_interval_with_sensible_limits() -> None:
    runs = AlternatingRuns(before_ns=[150.0, 90.0, 220.0], after_ns=[100.0, 70.0, 100.0])
    assert runs.speedup is not None
    assert 0.5 < runs.speedup.low < 1 < runs.speedup.high < 5
    alike = AlternatingRuns(before_ns=[150.0, 151.0, 149.0], after_ns=[100.0] * 3)
    assert alike.speedup is not None
    assert 1.3 < alike.speedup.low < 1.5 < alike.speedup.high < 1.7


def test_the_error_of_a_median_follows_from_the_spread_of_the_steps() -> None:
    assert error_of_median([5.0] * 12) == 0
    assert error_of_median([5.0] * 11 + [50.0]) == 0  # one slow step
    few, many = error_of_median([4.0, 6.0] * 6), error_of_median([4.0, 6.0] * 24)
    assert few == pytest.approx(2 * many) and 0.05 < few < 0.2
