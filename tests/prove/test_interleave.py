"""What is run, in which order, and what is made of it, on simulated programs."""

import itertools

import pytest
from msgspec.structs import replace

from boundby.model.diagnosis import Estimate
from boundby.prove.combination import Combined, combine
from boundby.prove.results import BASELINE, TrialStore
from boundby.prove.scheduler import Schedule
from boundby.prove.trial_result import TrialResult
from tests.prove.simulation import Program, candidate, experiment


@pytest.mark.parametrize(
    ("noise", "drift", "tries"),
    [
        (0.01, 0.0, 20),
        (0.035, 0.0, 60),
        (0.06, 0.0, 20),
        (0.15, 0.0, 60),
        (0.03, 0.05, 60),
        (0.05, 0.1, 60),
    ],
)
def test_a_change_that_changes_nothing_is_no_gain(noise: float, drift: float, tries: int) -> None:
    """A against A: at most one of twenty may seem to be faster."""
    one = candidate("nothing")
    kept = [
        seed
        for seed in range(tries)
        if experiment([one], Program({one.key: 1.0}, seed=seed, processes=noise, drift=drift))[0]
        .result((one.key,))
        .held
    ]
    assert len(kept) <= tries // 20


def test_on_a_machine_that_drifts_a_gain_is_seen_beside_the_nearest_baselines() -> None:
    one = candidate("faster")
    found = inside = 0
    for seed in range(25):
        program = Program({one.key: 1.3}, seed=seed, drift=0.08)
        result = experiment([one], program)[0].result((one.key,))
        assert result.speedup is not None
        found += result.held
        inside += result.speedup.low <= 1.3 <= result.speedup.high
    assert found >= 20
    assert inside >= 22


def test_real_gains_are_found_and_their_intervals_hold_the_truth() -> None:
    one = candidate("faster")
    found = inside = 0
    for seed in range(25):
        ledger, _, _ = experiment([one], Program({one.key: 1.15}, seed=seed))
        result = ledger.result((one.key,))
        assert result.speedup is not None
        found += result.held
        inside += result.speedup.low <= 1.15 <= result.speedup.high
    assert found >= 22
    assert inside >= 22


def test_on_an_unsteady_machine_the_time_that_is_left_goes_to_what_is_open() -> None:
    """Processes that differ by 15%: six runs of each say nothing of a fifth, sixteen mostly do."""
    one = candidate("faster")
    found = undecided = 0
    for seed in range(20):
        program = Program({one.key: 1.25}, seed=seed, processes=0.15)
        ledger, _, order = experiment([one], program)
        result = ledger.result((one.key,))
        found += result.held
        undecided += result.open
        assert order.count((one.key,)) <= 16
    assert found >= 16
    assert undecided <= 2
    # Where there is no time left, it stays open.
    short = [
        experiment([one], Program({one.key: 1.25}, seed=seed, processes=0.15), 90.0)[0]
        for seed in range(20)
    ]
    assert sum(ledger.result((one.key,)).open for ledger in short) > undecided


def test_baseline_and_fix_take_turns() -> None:
    one = candidate("faster")
    _, _, order = experiment([one], Program({one.key: 1.1}, seed=1))
    assert order[:4] == [BASELINE, (one.key,), BASELINE, (one.key,)]
    assert abs(order.count(BASELINE) - order.count((one.key,))) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_run_again_without_a_baseline_since(seed: int) -> None:
    """Fixes that are looked at late have as many baselines near them as the first ones."""
    gains = {"one/one": 1.05, "two/two": 1.2, "three/three": 1.0, "four/four": 1.1}
    fixes = [candidate(key.partition("/")[0]) for key in gains]
    program = Program(gains, seed=seed, drift=0.06, longer_s={"two/two": 30.0})
    _, _, order = experiment(fixes, program, 1200.0)
    for arm in set(order) - {BASELINE}:
        at = [place for place, one in enumerate(order) if one == arm]
        assert all(BASELINE in order[a:b] for a, b in itertools.pairwise(at)), order


def test_what_is_plain_is_not_asked_again() -> None:
    slow, fast, broken = candidate("slow"), candidate("fast"), candidate("broken")
    program = Program({slow.key: 0.5, fast.key: 2.0, broken.key: 3.0}, seed=3, broken=[broken.key])
    ledger, schedule, order = experiment([slow, fast, broken], program)
    assert order.count((slow.key,)) == 1
    assert order.count((broken.key,)) == 1
    assert ledger.result((broken.key,)).outcome == "failed"
    assert ledger.result((slow.key,)).why == "it is slower"
    assert schedule.final == (fast.key,)
    # The one that held is measured again with the baseline beside it.
    assert order[-1] in (BASELINE, (fast.key,))


def test_what_left_the_program_alone_says_why_and_does_not_hide_among_others() -> None:
    """The first two were not seen alone; of the others, one changed a part of the program."""
    idle, good, partly = ("idle/idle",), ("good/good",), ("partly/partly",)
    seen = Program({"idle/idle": 1.0, "good/good": 1.5, "partly/partly": 1.2}, seed=1)
    ledger = TrialStore([seen.observe(BASELINE, False, 1)])
    left, changed = {"a cache": 0}, {"compiled Net": 1}
    for arm, touched in (
        (idle, left),
        (good, changed),
        (partly, changed | left),
        (("unseen/unseen", *good), changed | left),
        ((*partly, *good), changed | left),
    ):
        ledger.add(replace(seen.observe(arm[-1:], False, 1), arm=list(arm), touched=touched))
    assert (ledger.result(idle).outcome, ledger.result(idle).why) == ("not run", "a cache")
    assert ledger.result(good).speedup is not None
    assert ledger.result(partly).speedup is not None
    assert ledger.result(("unseen/unseen", *good)).why == "a cache"
    assert ledger.result((*partly, *good)).speedup is not None


def test_what_held_is_combined_best_first() -> None:
    names = ("good", "better", "wrong", "idle")
    good, better, wrong, idle = (candidate(name) for name in names)
    gains = {good.key: 1.2, better.key: 1.5, wrong.key: 4.0, idle.key: 1.0}
    program = Program(gains, seed=5, processes=0.01, wrong=[wrong.key])
    ledger, schedule, order = experiment([good, better, wrong, idle], program)
    assert schedule.final == (better.key, good.key)
    result = ledger.result(schedule.final)
    assert result.held
    assert result.speedup is not None
    assert result.speedup.low <= 1.8 <= result.speedup.high
    assert ledger.result((wrong.key,)).outcome == "wrong numbers"
    assert order.count(schedule.final) > 1


def test_one_slow_run_does_not_end_a_combination_where_runs_differ() -> None:
    """As seen on a CPU: both held alone, together they took a little longer, once."""
    one, other = candidate("one"), candidate("other")
    both = (one.key, other.key)
    program = Program({one.key: 1.0, other.key: 1.0}, seed=1)

    def seen(arm: tuple[str, ...], milliseconds: float) -> TrialResult:
        return replace(program.observe(arm, False, 1), samples_ns=[milliseconds * 1e6] * 15)

    ledger = TrialStore()
    for base, first, second in ((131, 114, 109), (146, 117, 126), (126, 105, 120), (140, 118, 113)):
        for arm, took in ((BASELINE, base), ((one.key,), first), ((other.key,), second)):
            ledger.add(seen(arm, took))
    ledger.add(seen(both, 122))
    assert combine([one, other], ledger).wanted == both
    ledger.add(seen(both, 95))
    assert combine([one, other], ledger) == Combined(arm=both, wanted=None)


def test_fixes_that_exclude_each_other_are_not_combined() -> None:
    first = candidate("first", excludes=frozenset({"second"}))
    second = candidate("second")
    third = candidate("third", environment=(("OMP", "1"),))
    fourth = candidate("fourth", environment=(("OMP", "2"),))
    gains = {first.key: 1.5, second.key: 1.4, third.key: 1.3, fourth.key: 1.25}
    _, schedule, order = experiment(
        [first, second, third, fourth], Program(gains, seed=7, processes=0.01)
    )
    assert schedule.final == (first.key, third.key)
    assert not any({first.key, second.key} <= set(arm) for arm in order)
    assert not any({third.key, fourth.key} <= set(arm) for arm in order)


def test_no_time_is_left_over_while_something_is_open() -> None:
    one = candidate("little")
    program = Program({one.key: 1.02}, seed=2, processes=0.08)
    ledger, _, order = experiment([one], program, budget_s=110.0)
    # Nine of twelve seconds: a reference, and four of each.
    assert (order.count(BASELINE), order.count((one.key,))) == (4, 4)
    assert not ledger.result((one.key,)).held


@pytest.mark.parametrize("seed", range(6))
def test_what_is_found_last_is_asked_until_it_is_sure(seed: int) -> None:
    """There are many baselines by then: those are not what lacks."""
    good, little, idle = (candidate(name) for name in ("good", "little", "idle"))
    gains = {good.key: 1.4, little.key: 1.15, idle.key: 0.95}
    program = Program(gains, seed=seed, processes=0.14)
    ledger, schedule, _ = experiment([good, little, idle], program, budget_s=2000.0)
    assert schedule.final != BASELINE
    assert not ledger.result(schedule.final).lacking


def test_before_a_dear_combination_the_best_so_far_is_made_sure_of() -> None:
    """On a CPU where processes differ by much: a fix that works, and a compiler that does not."""

    def promise(speedup: float) -> Estimate:
        return Estimate(low=speedup, expected=speedup, high=speedup)

    good = candidate("good", predicted=promise(1.6))
    compiled = candidate("compile", predicted=promise(1.06), preparation_s=60.0)
    held = 0
    for seed in range(10):
        ledger, _, _ = experiment(
            [good, compiled],
            Program(
                {good.key: 1.5, compiled.key: 0.88},
                seed=seed,
                processes=0.12,
                longer_s={compiled.key: 220.0},
            ),
            budget_s=720.0,
            foresee=lambda chosen: promise(1.7 if len(chosen) > 1 else 1.6),
        )
        held += ledger.result((good.key,)).held
        for number, seen in enumerate(ledger.observed):
            if len(seen.arm) > 1:
                assert TrialStore(ledger.observed[:number]).result((good.key,)).held
                break
    assert held >= 9


@pytest.mark.parametrize("budget", [1.0, 60.0, 150.0])
def test_the_budget_is_kept(budget: float) -> None:
    candidates = [candidate(name) for name in "abcdef"]
    gains = {one.key: 1.2 for one in candidates}
    ledger, _, _ = experiment(candidates, Program(gains, seed=2), budget_s=budget)
    # Without a baseline there is nothing to say.
    assert len(ledger.observed) * 12 <= max(budget, 12.0)
    if budget == 1.0:
        assert ledger.result((candidates[0].key,)).outcome == "not run"


def test_an_experiment_goes_on_where_it_was() -> None:
    candidates = [candidate(name) for name in "ab"]
    gains = {candidates[0].key: 1.3, candidates[1].key: 1.1}
    whole, _, _ = experiment(candidates, Program(gains, seed=4))
    resumed = TrialStore(whole.observed[:5])
    step = Schedule(candidates, resumed, 600.0).next(60.0)
    assert step is not None
    assert list(step.arm) == whole.observed[5].arm
