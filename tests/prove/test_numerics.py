"""What counts as the same numbers, and what does not."""

import msgspec

from boundby.prove.numerics import find_verdict
from boundby.prove.trial_result import Call, Input, Notes

LOSSES = [2.0, 1.9, 1.8, 1.75, 1.7, 1.65, 1.6]
SPREAD = [0.0, 0.02, -0.02]
OUTPUTS = [1.0, -2.0, 3.0]


def notes(
    *,
    scale: float = 1.0,
    seeded: float = 0.0,
    dropouts: int = 0,
    precision: str = "float32",
    tokens: int = 7,
    outputs: float = 1.0,
    later: float = 1.0,
    later_gradients: float | None = 1.0,
) -> Notes:
    losses = [loss * scale for loss in LOSSES]
    losses[1:3] = [loss * later for loss in losses[1:3]]
    losses[3:] = [loss + seeded for loss in losses[3:]]
    call = Call(
        step=0,
        inputs=[Input(shape=[4], sum=tokens)],
        outputs=[[value * outputs for value in OUTPUTS]],
    )
    return Notes(
        losses=[[loss] for loss in losses],
        gradients=[0.5 * scale, 0.25 * scale],
        later_gradients=[]
        if later_gradients is None
        else [0.4 * scale * later_gradients, 0.2 * scale * later_gradients],
        calls=[call],
        dropouts=dropouts,
        draws_seeded=dropouts > 0,
        precision=precision,
    )


def baselines(dropouts: int = 0) -> list[Notes]:
    return [notes(seeded=off if dropouts else 0.0, dropouts=dropouts) for off in SPREAD]


def test_the_same_is_the_same() -> None:
    found = find_verdict(baselines(), [notes()], notes(), None)
    assert found.ok


def test_a_thousandth_is_noticed_in_float32() -> None:
    for changed in (notes(scale=1.001), notes(outputs=1.001), notes(later=1.001)):
        found = find_verdict(baselines(), [changed], notes(), None)
        assert not found.ok
        assert found.why.endswith(" is explained") and "dropout" not in found.why


def test_a_thousandth_is_what_bfloat16_explains() -> None:
    changed = notes(scale=1.001, outputs=1.002)
    assert find_verdict(baselines(), [changed], notes(), "bfloat16").ok
    assert not find_verdict(baselines(), [notes(scale=1.2)], notes(), "bfloat16").ok


def test_an_error_the_program_made_before_is_no_fault_of_the_fix() -> None:
    """Off from float32 on the other side, by as much."""
    before = [notes(scale=1.004, precision="bfloat16")] * 3
    assert find_verdict(before, [notes(scale=0.996)], notes(), None).ok
    assert not find_verdict(before, [notes(scale=0.94)], notes(), None).ok


def test_losses_may_lie_within_the_spread_of_dropout() -> None:
    before = baselines(dropouts=3)
    assert find_verdict(before, [notes(seeded=0.03, dropouts=3)], notes(dropouts=3), None).ok
    found = find_verdict(before, [notes(seeded=0.3, dropouts=3)], notes(dropouts=3), None)
    assert not found.ok
    assert "3 dropout seeds" in found.why


def test_losses_that_drift_by_themselves_may_drift() -> None:
    drifting = [notes(), notes(later=1.0005), notes(later=0.9995)]
    changed = [notes(later=1.001)]
    assert find_verdict(drifting, changed, notes(), None).ok
    assert not find_verdict(baselines(), changed, notes(), None).ok
    # Nudged losses that cross at one step have not come back together.
    first = notes()
    crossed = [[2.0], [1.9], [1.8], [1.75], [1.7 * 1.001], [1.65 * 1.002], [1.6 * 1.004]]
    nudged = msgspec.structs.replace(first, losses=crossed)
    early = [*crossed[:3], [1.75 * 1.0005], *crossed[4:]]
    assert find_verdict(
        [first, nudged], [msgspec.structs.replace(first, losses=early)], first, None
    ).ok


def test_losses_that_rounding_moves_far_are_said_to_tell_little() -> None:
    """Nudged they came to lie 4% off: a fix may do as much, whatever else it does."""
    restless = [notes(), notes(later=1.04), notes(later=0.96)]
    found = find_verdict(restless, [notes(later=1.03)], notes(), None)
    assert found.ok
    assert "so far that 10.00% had to be allowed: a fix that harms training by less" in found.why
    assert "goes unseen" not in find_verdict(baselines(), [notes()], notes(), None).why


def test_other_data_are_compared_by_the_scatter_of_steps() -> None:
    found = find_verdict(baselines(), [notes(tokens=8, scale=1.01)], notes(), None)
    assert found.ok
    assert "drawn anew" in found.why
    assert not find_verdict(baselines(), [notes(tokens=8, scale=2.0)], notes(), None).ok


def test_numbers_that_blow_up_are_wrong() -> None:
    assert not find_verdict(
        baselines(), [notes(scale=1e298, outputs=1e300)], notes(), "bfloat16"
    ).ok


def test_nothing_to_compare_is_not_fine() -> None:
    assert not find_verdict(baselines(), [], notes(), None).ok
    assert not find_verdict([Notes()], [Notes()], None, None).ok


def test_only_processes_that_ran_without_dropout_at_first_are_compared() -> None:
    base = [notes(dropouts=1, seeded=spread) for spread in SPREAD]
    other = msgspec.structs.replace(notes(dropouts=1, scale=1.3), exact=False)
    assert find_verdict(base, [notes(dropouts=1), other], None, None).ok
    assert find_verdict(base, [other], None, None).why == "nothing to compare"


def test_gradients_that_are_wrong_from_the_second_step_on_are_noticed() -> None:
    """An optimizer that takes only their signs hides a factor from the losses."""
    for factor in (2.0, 2**0.5, 0.5):
        for precision in (None, "bfloat16"):
            found = find_verdict(baselines(), [notes(later_gradients=factor)], notes(), precision)
            assert not found.ok
            assert found.why.startswith("gradients of step 3 off by")
    # By then they have drifted apart more than in the first step.
    assert find_verdict(baselines(), [notes(later_gradients=1.005)], notes(), None).ok
    assert find_verdict(baselines(), [notes(later_gradients=1.1)], notes(), "bfloat16").ok
    assert not find_verdict(baselines(), [notes(later_gradients=1.05)], notes(), None).ok
    # With one baseline, nobody knows by how much.
    assert find_verdict(baselines()[:1], [notes(later_gradients=1.05)], notes(), None).ok
    assert not find_verdict(baselines()[:1], [notes(later_gradients=1.4)], notes(), None).ok
    drifting = [notes(), notes(later_gradients=1.02), notes(later_gradients=0.98)]
    assert find_verdict(drifting, [notes(later_gradients=1.05)], notes(), None).ok
    assert not find_verdict(drifting, [notes(later_gradients=2.0)], notes(), None).ok


def test_notes_of_before_such_gradients_were_noted_are_judged_as_they_were() -> None:
    old = notes(later_gradients=None)
    assert msgspec.json.decode(msgspec.json.encode(old), type=Notes) == old
    for before in ([old] * 3, [notes(), old, old], baselines()):
        for reference in (old, notes(), None):
            for after in (old, notes()):
                assert find_verdict(before, [after], reference, None).ok
    assert not find_verdict([old] * 3, [notes(scale=1.001)], old, None).ok


def test_larger_rounding_errors_in_the_first_step_grow_to_larger_ones() -> None:
    """A compiler sums in another order: what that comes to later is judged by how far it began."""

    def moved(gradient: float, third_loss: float) -> Notes:
        made = notes()
        losses = [*made.losses[:2], [1.8 * (1 + third_loss)], *made.losses[3:]]
        gradients = [0.5 * (1 + gradient), 0.25]
        return msgspec.structs.replace(made, losses=losses, gradients=gradients)

    before = [notes(), moved(1e-6, 5e-6)]
    assert find_verdict(before, [moved(2e-5, 2e-4)], notes(), None).ok
    # From where the nudged one began, only as far as that came.
    assert not find_verdict(before, [moved(1e-6, 2e-4)], notes(), None).ok
    # And what began as far as that is no reason for itself: those gradients are wrong.
    assert not find_verdict(before, [moved(2e-4, 0.0)], notes(), None).ok
