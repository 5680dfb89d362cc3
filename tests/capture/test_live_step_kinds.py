"""Kinds of steps: evaluation, inference, rollouts, shapes."""

import pytest

from boundby.capture.process.step_finder import StepFinder
from boundby.capture.torch.observe import with_samples
from boundby.capture.torch.shapes import step_kind
from tests.capture.simulated_script import SimulatedScript


def test_evaluation_inside_training_is_a_separate_kind() -> None:
    script = SimulatedScript(optimizers=1)
    for iteration in range(4):
        script.train()
        if iteration == 2:
            for _ in range(3):
                script.evaluate((64, 8))
        script.step()
    assert script.ends == [
        "train 32x8",
        "train 32x8",
        "train 32x8 with 3 evaluation calls",
        "train 32x8",
    ]


def test_evaluation_before_training_is_not_a_training_step() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(100):
        script.evaluate()
    assert set(script.ends) == {"forward 32x8"} and script.finder.is_unclear
    script.train()
    script.step()
    assert script.ends[-1] == "train 32x8" and script.finder.found_by == "optimizer"
    assert script.restarts == 1 and not script.finder.is_unclear


def test_evaluation_before_the_optimizer_is_made_starts_over() -> None:
    script = SimulatedScript()
    for _ in range(5):
        script.evaluate()
    assert script.ends == ["forward 32x8"] * 4
    script.finder.optimizer_made(100)
    for _ in range(3):
        script.train()
        script.step()
    assert script.restarts == 1
    assert script.ends[4:] == ["forward 32x8"] + ["train 32x8"] * 3


def test_inference_calls_are_steps() -> None:
    script = SimulatedScript()
    for _ in range(5):
        script.evaluate()
    # The last one has no end: nothing says that the script went on to something else.
    assert script.ends == ["forward 32x8"] * 4
    assert script.finder.found_by == "forward"


def test_unused_optimizer_does_not_hide_inference_steps() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(30):
        script.evaluate()
    assert 0 < len(script.ends) <= 10
    assert script.finder.found_by == "forward" and script.finder.is_unclear
    for _ in range(480):
        script.evaluate()
    assert not script.finder.is_unclear


def test_ranks_do_not_take_the_steps_of_an_unclear_evaluation() -> None:
    """One rank may evaluate before all train: they must take the same steps."""
    ends: list[str] = []
    finder = StepFinder("auto", ends.append, may_be_unclear=False)
    finder.optimizer_made(1)
    for _ in range(30):
        finder.called(0, False, (32, 8))
    assert not ends


def test_rollouts_before_the_first_update_are_not_inference() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(2048):
        script.finder.called(0, False, (4,), waits=True)
    assert script.ends == []
    script.train((64, 4))
    script.step()
    assert len(script.ends) == 1


def test_update_after_a_rollout_with_gradients_is_named_by_its_batch() -> None:
    """Agents that sample actions without `no_grad` pass the states one by one before the update."""
    script = SimulatedScript(optimizers=1)
    for _ in range(3):
        for _ in range(20):
            script.train((4,))
        for _ in range(2):
            script.train((20, 4))
            script.step()
    assert script.ends[-2:] == ["train 20x4 after single samples", "train 20x4"]
    assert script.finder.kinds["train 20x4 after single samples"].samples == 20


def test_batches_of_other_modules_do_not_name_the_step() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(3):
        script.train((1, 8), model=1)
        script.train((640, 8), model=2)
        script.step()
    assert set(script.ends) == {"train 1x8"}


def test_calls_of_a_frozen_model_are_not_steps() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(2048):
        script.finder.called(7, False, (1, 3), owned=False)
    assert script.ends == []
    for _ in range(3):
        # A teacher runs first, on one sample or another form of the batch.
        script.finder.called(7, True, (1, 3), owned=False)
        script.finder.called(8, False, (32, 3), owned=False)
        script.train((32, 8))
        script.step()
    assert script.ends[1:] == ["train 32x8"] * 2


def test_inference_after_training_is_a_kind_of_its_own() -> None:
    script = SimulatedScript(optimizers=1)
    script.train()
    script.step()
    for _ in range(510):
        script.evaluate()
    assert script.ends[-1] == "forward 32x8"


def test_model_replaced_by_another_starts_new_steps() -> None:
    script = SimulatedScript()
    for _ in range(3):
        script.evaluate(model=0)
    for _ in range(60):
        script.evaluate((1, 1), model=1)
    assert script.ends[-5:] == ["forward 1x1"] * 5


def test_script_without_an_optimizer_for_a_while_still_trains() -> None:
    """One for each client, which ends with its training; then an evaluation that records."""
    script = SimulatedScript()
    for client in range(12):
        script.finder.optimizer_made(100 + client)
        for _ in range(4):
            script.train()
            script.finder.backward_ended()
            script.step(client)
        script.finder.optimizer_gone(100 + client)
        for _ in range(3):
            script.train((64, 8))
    assert script.ends.count("train 32x8") == 12 * 4 - 11
    assert len(script.ends) == 12 * 4 and not script.restarts


def test_prefill_and_decode_are_distinguished_by_shape() -> None:
    script = SimulatedScript()
    for _ in range(3):
        script.evaluate((1, 128))
        for _ in range(4):
            script.evaluate((1, 1))
    assert script.ends.count("forward 1x128") == 3
    assert script.ends.count("forward 1x1") == 11


def test_growing_shapes_become_one_kind() -> None:
    script = SimulatedScript()
    for length in range(5, 40):
        script.evaluate((1, length))
    assert script.ends[8:] == ["forward"] * 26


def test_batches_of_varying_length_become_one_kind() -> None:
    script = SimulatedScript(optimizers=1)
    for length in range(100, 130):
        script.train((32, length))
        script.step()
    assert script.ends[8:] == ["train"] * 22


def test_decoding_is_one_kind_despite_prompts_of_any_length() -> None:
    script = SimulatedScript()
    for length in range(100, 120):
        script.evaluate((1, length))
        for _ in range(20):
            script.evaluate((1, 1))
    assert script.ends[-19:] == ["forward 1x1"] * 19
    assert script.ends.count("forward") == 20 - 7


def test_long_rollouts_between_updates_are_separate_steps() -> None:
    """Not before the first update: until then it is unknown whether the script trains."""
    script = SimulatedScript(optimizers=1)
    for iteration in range(3):
        for _ in range(8):
            script.finder.called(0, False, (4, 4), waits=True, gradients=False)
        assert script.finder.awaits_rollouts is (iteration == 1)
        for _ in range(2):
            script.train()
            script.finder.backward_ended()
            script.step()
    updates = ["train 32x8"] * 2
    assert script.ends[:2] == updates
    # Of the first row two calls are one step: a teacher may be called twice.
    assert script.ends[2:] == ["forward 4x4"] * 7 + updates + ["forward 4x4"] * 8 + updates
    assert script.finder.found_by == "optimizer" and not script.restarts


def test_calls_of_a_model_in_training_mode_that_only_predicts_are_no_rollouts() -> None:
    """A model is made in training mode: inference often leaves it so."""
    script = SimulatedScript()
    for _ in range(10):
        script.finder.called(0, False, (5, 1), waits=True, gradients=False)
        assert not script.finder.awaits_rollouts
    assert script.finder.found_by == "forward" and len(script.ends) > 6


def test_short_rollout_and_its_update_are_one_step() -> None:
    """What is made of it is between the two: returns, advantages."""
    script = SimulatedScript(optimizers=1)
    for _ in range(4):
        for _ in range(16):
            script.finder.called(0, True, (4, 4), waits=True, gradients=False)
        script.train()
        script.finder.backward_ended()
        script.step()
    assert len(script.ends) == 4 and len(set(script.ends)) == 1
    assert "train 32x8" in script.ends[0] and not script.finder.awaits_rollouts


def test_actor_and_critic_calls_of_a_rollout_are_one_step() -> None:
    script = SimulatedScript(optimizers=1)
    script.train()
    script.step()
    for _ in range(5):
        for model in (0, 1):
            script.finder.called(model, False, (4, 4), waits=True, gradients=False)
    script.train()
    assert script.ends == ["train 32x8"] + ["forward 4x4"] * 5


def test_few_calls_without_gradients_belong_to_the_training_step() -> None:
    """Of a target network that no optimizer updates, or of the model itself."""
    script = SimulatedScript(optimizers=1)
    for _ in range(4):
        for _ in range(3):
            script.finder.called(7, False, (32, 8), owned=False, gradients=False)
        script.finder.called(0, False, (32, 8), gradients=False)
        script.train()
        script.step()
    assert script.ends[1:] == ["train 32x8 with 1 evaluation call"] * 3


@pytest.mark.parametrize("in_training", [False, True])
def test_evaluation_after_the_first_step_is_not_diagnosed_as_training(
    in_training: bool,
) -> None:
    """As in a loop that evaluates `if step % 100 == 0`, whether or not it calls `model.eval()`."""
    script = SimulatedScript(optimizers=1)
    for iteration in range(5):
        script.train()
        script.finder.backward_ended()
        script.step()
        assert not script.finder.awaits_training
        for call in range(20 if iteration in (0, 4) else 0):
            script.finder.called(0, False, (4, 8), waits=in_training, gradients=False)
            assert script.finder.awaits_training is (iteration == 0 and call >= 2)
    # What was measured until the training went on is forgotten, once.
    assert script.restarts == 1
    assert script.ends[-1] == "forward 4x8"


@pytest.mark.parametrize("batches", [(24, 24, 24, 7), (24, 7), (3, 5, 7, 9)])
def test_kind_of_many_shapes_has_the_batch_size_of_most(batches: tuple[int, ...]) -> None:
    kinds = [step_kind("forward", (size, 10 + at)) for at, size in enumerate(batches)]
    kinds += [step_kind("train", (64, 8)), step_kind("train", (64, 9))]
    found = with_samples(step_kind("forward"), kinds)
    assert found.samples == (24 if len(set(batches)) == 2 and len(batches) == 4 else None)
    one_shape = step_kind("forward", (5, 5))
    assert with_samples(one_shape, kinds) is one_shape
