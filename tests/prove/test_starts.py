"""What is compared was begun alike: fresh with fresh, forked with forked."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from boundby.prove.results import BASELINE, TrialStore
from boundby.prove.scheduler import Schedule
from boundby.prove.trial_result import Start, TrialResult
from tests.prove.simulation import Program, candidate

# Of a fresh process, and of a forked one; the prepared one takes as long as a fresh one.
FRESH_S, FORKED_S = 20.0, 4.0
PLAIN, VARIABLE = candidate("plain"), candidate("variable", environment=(("OMP", "1"),))


def begun(
    program: Program,
    arm: Sequence[str],
    start: Start,
    *,
    reference: bool = False,
    slower: float = 1,
) -> TrialResult:
    seen = program.observe(arm, reference, 1)
    return replace(
        seen,
        start=start,
        seconds=FORKED_S if start == "forked" else FRESH_S,
        samples_ns=[slower * ns for ns in seen.samples_ns],
    )


def ledger(*observed: TrialResult) -> TrialStore:
    return TrialStore(observed, environments={VARIABLE.key}, may_fork=True)


def test_both_sides_are_begun_alike_through_a_whole_experiment() -> None:
    """Forks run 1.08 times as long here, which no fix may gain or lose by."""
    program = Program({PLAIN.key: 1.3, VARIABLE.key: 1.0}, seed=1, processes=0.005, steps=0.005)
    known = ledger()
    schedule = Schedule([PLAIN, VARIABLE], known, 600.0)
    order: list[tuple[tuple[str, ...], Start]] = []
    elapsed = 0.0
    while (step := schedule.next(elapsed)) is not None:
        slower = 1.08 if step.start == "forked" else 1.0
        seen = begun(program, step.arm, step.start, reference=step.reference, slower=slower)
        known.add(seen)
        elapsed += seen.seconds
        order.append((step.arm, step.start))
    # A fresh one first, then a fork to be compared with it.
    assert order[:2] == [(BASELINE, "fresh"), (BASELINE, "forked")]
    assert known.forks
    assert {start for arm, start in order if arm == (PLAIN.key,)} == {"forked"}
    # Variables are for fresh processes, and get baselines of their own.
    with_variable = [start for arm, start in order if VARIABLE.key in arm]
    assert set(with_variable) == {"fresh"}
    assert order.count((BASELINE, "fresh")) >= 2
    plain, variable = (known.result((one.key,)).speedup for one in (PLAIN, VARIABLE))
    assert plain is not None
    assert variable is not None
    assert abs(plain.median - 1.3) < 0.03
    assert abs(variable.median - 1.0) < 0.03
    share = known.relative((PLAIN.key,))
    assert share is not None
    assert abs(1 / share - 1.3) < 0.03
    assert known.start((PLAIN.key, VARIABLE.key)) == "fresh"


def test_without_time_for_more_than_it_costs_there_are_no_forks() -> None:
    program = Program({PLAIN.key: 1.3}, seed=1)
    known = ledger(begun(program, BASELINE, "fresh"))
    assert known.forks is None
    step = Schedule([PLAIN], known, 600.0).next(FRESH_S)
    assert step is not None
    assert (step.arm, step.start, step.reference) == (BASELINE, "forked", False)
    step = Schedule([PLAIN], known, 75.0).next(FRESH_S)
    assert step is not None
    assert (step.start, step.reference) == ("fresh", True)
    # Begun without, it goes on without.
    known.add(begun(program, BASELINE, "fresh", reference=True))
    assert known.forks is False


def test_forks_that_are_refused_or_differ_count_for_nothing() -> None:
    program = Program({PLAIN.key: 1.3}, seed=1, processes=0.0)
    fresh, forked = (begun(program, BASELINE, start) for start in ("fresh", "forked"))
    assert ledger(fresh, forked).forks
    refused = replace(forked, not_forked="a thread", cut=True, problem="a thread")
    for other in (
        refused,
        begun(program, BASELINE, "forked", slower=1.5),
        replace(forked, problem="RuntimeError: in a bad fork"),
    ):
        known = ledger(fresh, other)
        assert known.forks is False
        assert known.tried(BASELINE) == [fresh]
        step = Schedule([PLAIN], known, 600.0).next(50.0)
        assert step is not None
        assert (step.start, step.reference) == ("fresh", True)
    assert TrialStore([fresh, forked], may_fork=False).tried(BASELINE) == [fresh]


def test_a_baseline_that_was_cut_is_none_in_between() -> None:
    program = Program({PLAIN.key: 1.3}, seed=1)
    arm = (PLAIN.key,)
    fix = begun(program, arm, "fresh")
    cut = replace(begun(program, BASELINE, "fresh"), cut=True)
    known = TrialStore([begun(program, BASELINE, "fresh"), fix, cut])
    assert known.since_baseline(arm) == [fix]
    known.add(begun(program, BASELINE, "fresh"))
    assert known.since_baseline(arm) == []


def test_a_fix_that_fails_in_a_fork_is_judged_by_a_fresh_process() -> None:
    program = Program({PLAIN.key: 1.3, VARIABLE.key: 1.0}, seed=1, processes=0.0)
    arm = (PLAIN.key,)
    failed = replace(begun(program, arm, "forked"), problem="it crashed", samples_ns=[])
    known = ledger(
        *(begun(program, BASELINE, start) for start in ("fresh", "forked")),
        begun(program, BASELINE, "forked", reference=True),
        failed,
    )
    assert known.start(arm) == "fresh"
    assert known.start(BASELINE) == "forked"
    result = known.result(arm)
    assert (result.outcome, result.why) == (
        "failed",
        "it crashed (there was no time to see it in a fresh process too)",
    )
    step = Schedule([PLAIN], known, 600.0).next(50.0)
    assert step is not None
    assert (step.arm, step.start) == (arm, "fresh")
    known.add(begun(program, arm, "fresh"))
    found = known.result(arm).speedup
    assert found is not None
    assert abs(found.median - 1.3) < 0.05


@pytest.mark.parametrize(
    ("problem", "is_forks"),
    [
        ("RuntimeError: accessing tensor output of CUDAGraphs that has been overwritten", False),
        ("OutOfMemoryError: CUDA out of memory", False),
        ("the script exited with code 3", False),
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess", True),
        ("AcceleratorError: CUDA error: initialization error", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", True),
        ("BrokenProcessPool: A process in the process pool was terminated abruptly", True),
    ],
)
def test_an_error_that_a_fork_wrote_down_is_final_unless_it_is_for_the_fork(
    problem: str, is_forks: bool
) -> None:
    program = Program({PLAIN.key: 1.3}, seed=1, processes=0.0)
    arm = (PLAIN.key,)
    failed = replace(begun(program, arm, "forked"), problem=problem, samples_ns=[], reported=True)
    known = ledger(
        *(begun(program, BASELINE, start) for start in ("fresh", "forked")),
        begun(program, BASELINE, "forked", reference=True),
        failed,
    )
    assert known.start(arm) == ("fresh" if is_forks else "forked")
    result = known.result(arm)
    assert (result.outcome, result.why == problem) == ("failed", not is_forks)
    step = Schedule([PLAIN], known, 600.0).next(50.0)
    assert (step is not None and step.arm == arm) is is_forks
