"""Which variants are measured, and what is decided, on simulated programs with known ratios."""

import msgspec
import pytest

from boundby.model.estimate import Estimate
from boundby.model.proof import Outcome
from boundby.prove.evidence import Evidence
from boundby.prove.process_proofs import INTERRUPTED, ProcessResults
from boundby.prove.proofs import proofs_of
from boundby.prove.settled import untried_names
from tests.prove.simulated import FINE, Simulated, candidate

FUSED, CASTS, COMPILE = candidate("fused"), candidate("casts"), candidate("c", preparation_s=30.0)


def outcomes(evidence: Evidence, *candidates: object) -> dict[str, Outcome]:
    proofs = proofs_of(evidence, list(candidates))  # type: ignore[arg-type]
    return {proof.treatment: proof.outcome for proof in proofs}


def test_helpful_fixes_are_combined_and_others_dropped() -> None:
    program = Simulated({"fused": 1.2, "casts": 1.5, "idle": 1.0}, block_sd=0.003)
    every = [FUSED, CASTS, candidate("idle")]
    evidence = program.search(every)
    assert evidence.chosen == (CASTS.key, FUSED.key)
    assert evidence.done
    assert outcomes(evidence, *every) == {
        "fused": Outcome.KEPT,
        "casts": Outcome.KEPT,
        "idle": Outcome.NO_GAIN,
        "casts + fused": Outcome.KEPT,
    }
    together = proofs_of(evidence, every)[-1].speedup
    assert together is not None
    assert together.low < 1.8 < together.high


def test_decisions_need_few_rounds_on_a_quiet_machine() -> None:
    program = Simulated({"fused": 1.1}, block_sd=0.002)
    evidence = program.search([FUSED])
    assert evidence.chosen == (FUSED.key,)
    assert len(evidence.comparison_of((FUSED.key,), ()).log_ratios) <= 5


@pytest.mark.parametrize("block_sd", [0.002, 0.02])
def test_ineffective_fix_is_rarely_kept(block_sd: float) -> None:
    false = 0
    for seed in range(200):
        program = Simulated({}, block_sd=block_sd, seed=seed)
        evidence = program.search([FUSED], budget_s=30.0)
        false += bool(evidence.chosen)
    assert false <= 2


def test_planted_ratios_are_decided_under_noise() -> None:
    decided = 0
    for seed in range(40):
        program = Simulated({"fused": 1.1}, block_sd=0.02, seed=seed)
        decided += bool(program.search([FUSED], budget_s=120.0).chosen)
    assert decided >= 36


def test_a_failing_fix_is_dropped_and_the_others_are_measured() -> None:
    program = Simulated({"fused": 1.3}, failing=["casts"])
    evidence = program.search([CASTS, FUSED])
    assert evidence.chosen == (FUSED.key,)
    assert outcomes(evidence, CASTS)["casts"] is Outcome.FAILED


def test_wrong_numbers_are_rejected_and_unverified_results_need_consent() -> None:
    program = Simulated({"fused": 1.3, "casts": 1.5}, wrong=["casts"], unverified=["fused"])
    evidence = program.search([CASTS, FUSED])
    assert evidence.chosen == ()
    found = outcomes(evidence, CASTS, FUSED)
    assert found == {"casts": Outcome.WRONG_NUMBERS, "fused": Outcome.UNVERIFIED}
    program = Simulated({"fused": 1.3, "casts": 1.5}, wrong=["casts"], unverified=["fused"])
    assert program.search([CASTS, FUSED], accept_unverified=True).chosen == (FUSED.key,)


def test_a_fix_is_not_ruled_out_because_the_host_became_slower() -> None:
    quick = candidate("quick", without_finding=True)
    slow = candidate("slow", without_finding=True)
    # The first steps of the unchanged program take 0.1 s each, all later ones four times as long.
    program = Simulated({"quick": 1.5, "slow": 0.3}, pace=lambda s: 1.0 if s < 0.29 else 4.0)
    evidence = program.search([quick, slow])
    assert evidence.chosen == (quick.key,)
    assert "first steps took" in evidence.rulings[slow.key,].why


def test_compile_is_measured_beside_the_chosen_fixes() -> None:
    program = Simulated({"casts": 2.0, "c": 1.5}, first_use_s={"c": 40.0})
    evidence = program.search([COMPILE, CASTS])
    assert evidence.chosen == (CASTS.key, COMPILE.key)
    assert evidence.preparation_s[CASTS.key, COMPILE.key] == pytest.approx(40.0, rel=0.01)


def test_compile_replaces_only_the_chosen_fixes_that_exclude_it() -> None:
    masks, compiled = candidate("masks"), candidate("c", preparation_s=30.0, excludes=["masks"])
    program = Simulated({"casts": 2.0, "masks": 1.2, "c": 1.5}, block_sd=0.003)
    every = [CASTS, masks, compiled]
    evidence = program.search(every)
    assert evidence.chosen == (CASTS.key, compiled.key)
    proofs = {proof.treatment: proof for proof in proofs_of(evidence, every)}
    assert proofs["c"].setting == " beside casts instead of masks"
    together = proofs["casts + c"].speedup
    assert together is not None and together.low < 3.0 < together.high


def test_fixes_that_keep_compiled_code_come_before_those_that_compile_it_again() -> None:
    cheap = candidate("fused", keeps_compiled=True)
    program = Simulated({"fused": 1.2, "casts": 2.0}, first_use_s={"casts": 40.0})
    evidence = program.search([CASTS, cheap], budget_s=30.0, compiled_s=40.0)
    assert evidence.chosen == (cheap.key,)
    assert "expected to take 40 s" in evidence.rulings[cheap.key, CASTS.key].why
    program = Simulated({"fused": 1.2, "casts": 2.0}, first_use_s={"casts": 40.0})
    evidence = program.search([CASTS, cheap], budget_s=90.0, compiled_s=40.0)
    assert evidence.chosen == (cheap.key, CASTS.key)


def test_a_fix_that_looks_slower_than_a_chosen_one_that_excludes_it_is_not_decided() -> None:
    casts, products = (candidate(name, slot="precision") for name in ("casts", "products"))
    program = Simulated({"casts": 1.6, "products": 1.2}, block_sd=0.08)
    evidence = program.search([casts, products])
    assert evidence.chosen == (casts.key,)
    assert len(evidence.comparison_of((products.key,), ()).log_ratios) <= 6
    assert outcomes(evidence, casts, products)["products"] is Outcome.NO_GAIN


def test_compile_longer_than_the_remaining_time_is_skipped() -> None:
    again = candidate("again", preparation_s=30.0)
    program = Simulated({"c": 1.0, "again": 1.0}, first_use_s={"c": 150.0, "again": 150.0})
    evidence = program.search([COMPILE, again], budget_s=300.0)
    assert "expected to take 150 s" in evidence.rulings[again.key,].why


def test_no_round_starts_that_cannot_end_in_time() -> None:
    names = [f"fix{i}" for i in range(6)]
    program = Simulated({}, step_s=1.0, block_sd=0.05)
    program.search([candidate(name) for name in names], budget_s=60.0)
    # Blocks differ by 5% from their expected time.
    assert program.clock <= 1.05 * 60.0


def test_much_slower_fixes_are_dropped_after_two_rounds() -> None:
    program = Simulated({"fused": 0.4})
    evidence = program.search([FUSED])
    assert len(evidence.comparison_of((FUSED.key,), ()).log_ratios) == 2
    assert outcomes(evidence, FUSED)["fused"] is Outcome.NO_GAIN


def test_later_process_repeats_no_measurement() -> None:
    program = Simulated({"fused": 1.3})
    evidence = program.search([FUSED])
    rounds = len(evidence.comparison_of((FUSED.key,), ()).log_ratios)
    again = Simulated({"fused": 1.3})
    again.search([FUSED], evidence=evidence)
    assert len(evidence.comparison_of((FUSED.key,), ()).log_ratios) == rounds
    assert all(block.preparing for block in again.blocks)


def test_likeliest_fixes_come_first_if_steps_are_slow() -> None:
    every = [FUSED, *(candidate(f"idle{i}") for i in range(8))]
    program = Simulated({"fused": 1.5}, step_s=1.0, block_sd=0.002)
    evidence = program.search(every, budget_s=60.0)
    assert evidence.chosen == (FUSED.key,)


def test_fixes_without_a_finding_come_after_those_with_one() -> None:
    extra = candidate("extra", without_finding=True)
    program = Simulated({"fused": 1.2, "extra": 1.5, "c": 1.1}, block_sd=0.002)
    evidence = program.search([FUSED, COMPILE, extra])
    assert evidence.chosen == (extra.key, FUSED.key, COMPILE.key)
    order = [block.variant[-1] for block in program.blocks if block.variant]
    assert order.index(FUSED.key) < order.index(extra.key) < order.index(COMPILE.key)


def test_fixes_without_a_finding_are_skipped_if_time_is_short() -> None:
    extra = candidate("extra", without_finding=True)
    expensive = candidate("c", preparation_s=5.0)
    program = Simulated({"c": 1.5}, step_s=1.0, block_sd=0.002)
    program.search([expensive, extra], budget_s=80.0)
    order = [block.variant[-1] for block in program.blocks if block.variant]
    assert order.index(expensive.key) < order.index(extra.key)


def test_fix_without_a_finding_is_dropped_early_if_slower_or_inapplicable() -> None:
    slow, idle = candidate("slow", without_finding=True), candidate("idle", without_finding=True)
    program = Simulated({"slow": 0.1, "fused": 1.3}, idle=["idle"])
    every = [FUSED, slow, idle]
    evidence = program.search(every)
    assert sum(block.timed for block in program.blocks if slow.key in block.variant) <= 3
    assert sum(block.timed for block in program.blocks if idle.key in block.variant) <= 2
    # The one that found nothing to change was not requested.
    assert outcomes(evidence, *every) == {"fused": Outcome.KEPT, "slow": Outcome.NO_GAIN}


def test_fixes_without_a_finding_are_measured_in_the_order_of_their_first_steps() -> None:
    every = [candidate(f"same{i}", without_finding=True) for i in range(8)]
    every.append(candidate("faster", without_finding=True))
    program = Simulated({"faster": 1.4}, step_s=0.5, block_sd=0.002)
    program.search(every, budget_s=60.0)
    measured = {b.variant[-1] for b in program.blocks if b.variant and not b.preparing}
    assert every[-1].key in measured
    assert len(measured) < len(every)


def test_ineffective_fix_is_dropped_in_favour_of_others() -> None:
    """Its interval may stay open for long where steps are noisy."""
    every = [candidate(f"same{i}") for i in range(6)]
    every.append(candidate("last"))
    program = Simulated({"last": 1.5}, step_s=0.3, block_sd=0.05)
    evidence = program.search(every, budget_s=120.0)
    assert evidence.comparison_of((every[-1].key,), ()).log_ratios


def test_a_fix_that_changes_nothing_in_its_first_step_is_measured() -> None:
    program = Simulated({"fused": 1.3}, late=["fused"])
    assert program.search([FUSED]).chosen == (FUSED.key,)


def test_time_reserved_for_start_fixes_does_not_block_a_compile() -> None:
    program = Simulated({"c": 1.5}, first_use_s={"c": 30.0})
    assert program.search([COMPILE], budget_s=60.0, reserved_s=40.0).chosen == (COMPILE.key,)


def test_less_promising_compile_leaves_time_for_start_fixes() -> None:
    little = candidate(
        "c", preparation_s=30.0, predicted=Estimate(low=1.0, expected=1.01, high=1.1)
    )
    program = Simulated({"c": 1.5}, first_use_s={"c": 30.0})
    evidence = program.search([little], budget_s=60.0, reserved_s=40.0, start_gain=1.1)
    assert evidence.chosen == ()
    assert evidence.rulings[little.key,].outcome is Outcome.SKIPPED


def test_a_compile_measured_before_the_script_ended_is_not_reported_as_skipped() -> None:
    evidence = Evidence()
    found = evidence.comparison_of((COMPILE.key,), ())
    found.log_ratios = [0.1, 0.4, 0.2]
    found.before_ns, found.after_ns = [1e8] * 3, [0.9e8, 0.67e8, 0.82e8]
    program = Simulated({"c": 1.3}, first_use_s={"c": 30.0})
    program.search([COMPILE], budget_s=20.0, evidence=evidence)
    assert (COMPILE.key,) not in evidence.rulings
    assert outcomes(evidence, COMPILE) == {"c": Outcome.INCONCLUSIVE}


def test_separate_process_measures_applicable_fixes() -> None:
    program = Simulated({"fused": 1.3}, idle=["casts"], failing=["c"])
    variant = (CASTS.key, FUSED.key, COMPILE.key)
    evidence = program.search([CASTS, FUSED, COMPILE], timed=variant)
    assert evidence.left_out == {
        CASTS.key: "there is nothing for it to change in this program",
        COMPILE.key: "RuntimeError: planted",
    }
    assert evidence.timed_ns
    assert program.blocks[-1].variant == (FUSED.key,)


def test_untried_fixes_are_named() -> None:
    every = [candidate(name, without_finding=True) for name in ("idle", "one", "two")]
    program = Simulated({}, step_s=10.0, idle=["idle"])
    evidence = program.search(every, budget_s=90.0)
    assert untried_names(evidence, every) == ["one", "two"]
    assert "two" not in outcomes(evidence, *every)


def test_search_ends_in_time_for_the_final_check() -> None:
    """What was chosen by then stands: the process has not failed."""
    program = Simulated({"fused": 1.5}, block_sd=0.002)
    evidence = program.search([FUSED, CASTS, COMPILE], budget_s=60.0, reserved_s=50.0)
    assert evidence.out_of_time
    assert not evidence.done


def test_small_saving_is_measured_again_in_the_faster_step() -> None:
    program = Simulated({"casts": 10.0}, fixed_s={"fused": 0.0005}, block_sd=0.0005)
    evidence = program.search([FUSED, CASTS])
    assert evidence.comparison_of((FUSED.key,), ()).decision == "no gain"
    assert evidence.chosen == (CASTS.key, FUSED.key)


def test_promising_fix_is_decided_before_others_compile() -> None:
    program = Simulated({"casts": 1.6, "c": 1.0}, block_sd=0.2, first_use_s={"c": 100.0})
    program.search([CASTS, COMPILE])
    order = [block.variant[-1] for block in program.blocks if block.variant]
    alone = order[: order.index(COMPILE.key)]
    assert alone.count(CASTS.key) > 8


def test_noisy_promising_fixes_are_decided_before_a_long_compile() -> None:
    decided = 0
    idle = [candidate(f"idle{at}", without_finding=True) for at in range(2)]
    for seed in range(20):
        program = Simulated(
            {"fused": 1.35}, step_s=0.04, block_sd=0.24, first_use_s={"c": 60.0}, seed=seed
        )
        evidence = program.search([COMPILE, FUSED, *idle], budget_s=42.0)
        decided += evidence.chosen == (FUSED.key,)
    assert decided >= 18


def test_undecided_fixes_leave_time_for_the_compile_that_promises_most() -> None:
    compiled = candidate("c", preparation_s=30.0, predicted=Estimate(low=1.5, expected=2.8, high=4))
    tuned = candidate("t", preparation_s=240.0, predicted=Estimate(low=1, expected=3, high=4))
    small = [candidate(f"s{at}", predicted=Estimate(low=1, expected=1.1, high=2)) for at in "12"]
    program = Simulated({"s1": 1.06, "c": 2.5}, block_sd=0.3, first_use_s={"c": 30.0})
    evidence = program.search([compiled, tuned, *small], budget_s=60.0)
    assert compiled.key in evidence.chosen


def test_the_compile_that_promises_most_for_its_time_comes_first() -> None:
    usual, graphed, tuned = (
        candidate(
            name,
            preparation_s=seconds,
            predicted=Estimate(low=1, expected=expected, high=4),
            excludes=["usual", "graphed", "tuned"],
        )
        for name, seconds, expected in [("usual", 30, 1.5), ("graphed", 30, 2.8), ("tuned", 240, 3)]
    )
    program = Simulated({"usual": 1.4, "graphed": 2.5, "tuned": 2.5})
    program.search([usual, graphed, tuned])
    order = list(dict.fromkeys(block.variant for block in program.blocks if block.variant))
    assert order == [(graphed.key,), (usual.key,), (tuned.key,)]


def test_hundred_steps_suffice_for_three_rounds_of_four_fixes() -> None:
    every = [candidate(f"fix{at}") for at in range(4)]
    program = Simulated({}, block_sd=0.1)
    evidence = program.search(every, max_steps=100)
    steps, rounds = 0, 0
    for block in program.blocks:
        steps += block.untimed + block.timed
        rounds += block.variant == () and not block.preparing
        if steps > 100:
            break
    assert rounds // 2 >= 3  # two blocks of the unchanged program in each
    assert evidence.done


def test_fixes_that_look_no_faster_leave_short_time_to_the_others() -> None:
    every = [*(candidate(f"slow{at}") for at in range(4)), FUSED]
    ratios = {"fused": 1.15, **{f"slow{at}": 0.95 for at in range(4)}}
    program = Simulated(ratios, step_s=0.5, block_sd=0.04, seed=3)
    evidence = program.search(every, budget_s=120.0)
    rounds = {one.fix: len(evidence.comparison_of((one.key,), ()).log_ratios) for one in every}
    assert max(rounds[f"slow{at}"] for at in range(4)) <= 3 < rounds["fused"]
    assert evidence.chosen == (FUSED.key,)


def test_interrupt_is_not_reported_as_end_of_the_budget() -> None:
    start = msgspec.structs.replace(candidate("workers"), scope="start")
    proofs = proofs_of(
        Evidence(ended=INTERRUPTED), [FUSED, start], ProcessResults(not_tried=INTERRUPTED)
    )
    assert [proof.outcome for proof in proofs] == [Outcome.SKIPPED] * 2
    assert all("interrupted" in proof.why and not proof.open for proof in proofs)


def test_a_compile_that_was_not_tried_for_lack_of_time_is_reported() -> None:
    compiled = candidate("c", preparation_s=30.0, without_finding=True)
    program = Simulated({"fused": 1.35}, first_use_s={"c": 60.0})
    evidence = program.search([FUSED, compiled], budget_s=25.0)
    skipped = proofs_of(evidence, [FUSED, compiled])[-1]
    assert (skipped.treatment, skipped.outcome, skipped.open) == ("c", Outcome.SKIPPED, True)


def test_a_fix_that_was_not_measured_beside_the_kept_ones_is_undecided() -> None:
    faster = [0.2, 0.2, 0.2]
    evidence = Evidence(chosen=(CASTS.key,), checked={(FUSED.key,): FINE, (CASTS.key,): FINE})
    for one in (FUSED, CASTS):
        evidence.comparison_of((one.key,), ()).log_ratios.extend(faster)
    assert outcomes(evidence, FUSED)["fused"] is Outcome.INCONCLUSIVE
    beside = evidence.comparison_of((CASTS.key, FUSED.key), (CASTS.key,))
    beside.log_ratios.extend([0.0, 0.0, 0.0])
    assert outcomes(evidence, FUSED)["fused"] is Outcome.NO_GAIN


def test_changes_are_named_as_arguments_of_the_framework() -> None:
    evidence = Simulated({"fused": 1.2, "casts": 1.5}).search([FUSED, CASTS])
    words = {"casts": "TrainingArguments(bf16=True)"}
    proofs = proofs_of(evidence, [FUSED, CASTS], ProcessResults(words=words))
    changes = {proof.treatment: proof.change for proof in proofs}
    assert changes["casts"] == words["casts"]
    assert words["casts"] in changes["casts + fused"].splitlines()


def test_a_fix_that_another_replaces_names_it() -> None:
    graphs = candidate("graphs", slot="compilation")
    compiled = candidate("compiled", slot="compilation")
    program = Simulated({"compiled": 1.3, "graphs": 1.6}, block_sd=0.002)
    evidence = program.search([compiled, graphs])
    proofs = {proof.treatment: proof for proof in proofs_of(evidence, [compiled, graphs])}
    assert "graphs is even faster" in proofs["compiled"].why


def test_quick_preparation_does_not_imply_a_quick_compile() -> None:
    graphs, again = candidate("graphs", preparation_s=3.0), candidate("again", preparation_s=30.0)
    program = Simulated({}, first_use_s={"c": 150.0, "again": 150.0})
    evidence = program.search([COMPILE, graphs, again], budget_s=300.0)
    assert "expected to take 150 s" in evidence.rulings[again.key,].why
