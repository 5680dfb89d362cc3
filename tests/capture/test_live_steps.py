"""Where steps end, for the habits of training and inference loops; no torch, no clock."""

import pytest

from boundby.capture.torch.shapes import first_shape, step_kind
from boundby.model.step_kind import StepUnit
from tests.capture.simulated_script import SimulatedScript


def test_training_loop_steps_are_found() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(5):
        script.train()
        script.step()
    assert script.ends == ["train 32x8"] * 5
    assert script.finder.found_by == "optimizer"
    assert script.finder.seen == {
        "calls": 5,
        "backward passes": 0,
        "optimizer steps": 5,
        "marks": 0,
    }


def test_accumulated_backwards_are_one_step() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(4):
        for _ in range(8):
            script.train()
        script.step()
    assert script.ends == ["train 32x8"] * 4


def test_alternating_optimizers_end_with_the_last_of_a_cycle() -> None:
    script = SimulatedScript(optimizers=2)
    for iteration in range(6):
        script.train(model=0)
        script.step(0)
        assert len(script.ends) == iteration
        script.train(model=1)
        script.step(1)
    assert script.ends == ["train 32x8"] * 6


@pytest.mark.parametrize("critic_steps", [2, 5])
def test_critic_updated_more_often_than_generator_is_one_cycle(critic_steps: int) -> None:
    script = SimulatedScript(optimizers=2)
    for iteration in range(6):
        for _ in range(critic_steps):
            script.step(0)
            assert len(script.ends) == iteration
        script.step(1)
    assert len(script.ends) == 6


def test_generator_optimizer_that_starts_late_joins_the_cycle() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(20):
        script.step(0)
    assert len(script.ends) == 20
    script.finder.optimizer_made(101)
    before = len(script.ends)
    for _ in range(10):
        for _ in range(3):
            script.step(0)
        script.step(1)
    # Until it fires for the first time nothing is known of it.
    assert 10 <= len(script.ends) - before <= 13


def test_one_optimizer_per_parameter_is_one_step() -> None:
    script = SimulatedScript(optimizers=200)
    for iteration in range(3):
        for number in range(200):
            assert len(script.ends) == iteration
            script.step(number)
    assert len(script.ends) == 3


def test_optimizers_that_never_step_are_ignored() -> None:
    script = SimulatedScript(optimizers=10)
    for _ in range(20):
        for number in range(7):
            script.step(number)
    # The first cycle waits for the others; after that those that fire are a cycle.
    assert len(script.ends) >= 14


def test_optimizer_that_stops_stepping_is_dropped() -> None:
    script = SimulatedScript(optimizers=2)
    for _ in range(5):
        script.step(0)
        script.step(1)
    for _ in range(20):
        script.step(0)
    assert len(script.ends) >= 5 + 13


def test_deleted_optimizer_is_not_waited_for() -> None:
    script = SimulatedScript(optimizers=2)
    for _ in range(5):
        script.step(0)
        script.step(1)
    script.finder.optimizer_gone(101)
    for _ in range(5):
        script.step(0)
    assert len(script.ends) == 10


def test_replacing_optimizer_takes_over() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(5):
        script.step(0)
    script.finder.optimizer_gone(100)
    script.finder.optimizer_made(101)
    for _ in range(5):
        script.step(1)
    assert len(script.ends) == 10


def test_training_by_replayed_graphs_is_found() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(3):
        script.train()
        script.step()
    for _ in range(30):
        script.finder.called(7, True, None, patience=10)
    assert script.ends[:3] == ["train 32x8"] * 3
    assert len(script.ends) > 15


def test_alternating_encoder_and_decoder_are_one_step() -> None:
    script = SimulatedScript()
    for _ in range(4):
        script.evaluate((1, 100), model=0)
        script.evaluate((1, 7), model=1)
    assert script.ends == ["forward 1x100"] * 3


def test_encoder_call_with_many_decoder_calls_is_one_step() -> None:
    script = SimulatedScript()
    script.evaluate((1, 100), model=0)
    for _ in range(10):
        script.evaluate((1, 1), model=1)
    assert script.ends[1:] == ["forward 1x1"] * 8


def test_step_marks_take_precedence() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(3):
        script.train()
        script.finder.mark()
        script.train()
        script.step()
        script.finder.mark()
    assert script.ends == ["forward 32x8", "train 32x8"] * 3
    assert script.finder.found_by == "mark"
    assert script.finder.seen["marks"] == 6


def test_step_marks_work_without_model_calls() -> None:
    script = SimulatedScript("mark")
    script.finder.mark()
    script.finder.mark()
    assert script.ends == ["step", "step"]


def test_step_by_forward_ignores_the_optimizer() -> None:
    script = SimulatedScript("forward", optimizers=1)
    for _ in range(4):
        script.train()
        script.step()
    assert script.ends == ["train 32x8"] * 3


def test_step_by_optimizer_finds_nothing_without_one() -> None:
    script = SimulatedScript("optimizer")
    for _ in range(600):
        script.evaluate()
    assert script.ends == []


class FakeTensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.dtype = "float32"


def test_input_shape_is_found_in_any_argument() -> None:
    tensor = FakeTensor(2, 3)
    assert first_shape((tensor,), {}) == (2, 3)
    assert first_shape((1, "x", None), {"input_ids": tensor}) == (2, 3)
    assert first_shape(({"ids": [tensor]},), {}) == (2, 3)
    assert first_shape(((None, (tensor,)),), {}) == (2, 3)
    assert first_shape((1, [2, 3]), {}) is None
    assert step_kind("train", ()).label == "train scalar"


def test_labels_among_keywords_do_not_name_the_step() -> None:
    labels, tokens = FakeTensor(8), FakeTensor(8, 64)
    assert first_shape((), {"labels": labels, "input_ids": tokens}) == (8, 64)
    assert first_shape(({"labels": labels, "input_ids": tokens},), {}) == (8, 64)
    assert first_shape((), {"users": labels}) == (8,)
    assert first_shape((labels, tokens), {}) == (8,)


def test_manual_weight_updates_step_with_every_backward() -> None:
    """Tensors alone: no module is called, no optimizer made."""
    script = SimulatedScript()
    for _ in range(4):
        script.finder.backward_ended()
    assert script.ends == ["train"] * 4
    assert script.finder.found_by == "backward"


def test_backward_is_not_a_step_if_a_module_was_called() -> None:
    script = SimulatedScript()
    for _ in range(4):
        script.train()
        script.finder.backward_ended()
    assert script.ends == ["train 32x8"] * 3
    assert script.finder.found_by == "forward"


def test_backward_is_not_a_step_if_there_is_an_optimizer() -> None:
    script = SimulatedScript(optimizers=1)
    for _ in range(4):
        script.finder.backward_ended()
        script.finder.backward_ended()
        script.step()
    assert script.ends == ["train"] * 4


@pytest.mark.parametrize("then", ["call", "optimizer"])
def test_backward_passes_before_the_training_loop_are_dropped(then: str) -> None:
    """A check of gradients, say, before the model is made."""
    script = SimulatedScript()
    script.finder.backward_ended()
    script.finder.backward_ended()
    for _ in range(3):
        script.train() if then == "call" else script.step()
        script.finder.backward_ended()
    assert script.restarts == 1
    assert script.finder.found_by == ("forward" if then == "call" else "optimizer")
    assert len(script.ends) == (4 if then == "call" else 5)


def test_contents_of_step_are_counted() -> None:
    """The last step may be cut short: what most of them contain counts."""
    script = SimulatedScript(optimizers=1)
    for passes in (4, 4, 3):
        script.finder.called(0, False, (2, 8), gradients=False)
        for _ in range(passes):
            script.train()
            script.finder.backward_ended()
        script.step()
    unit = script.finder.kinds["train 32x8 with 1 evaluation call"].unit
    assert unit == StepUnit(calls=4, backwards=4, updates=1, evaluations=1)


def test_closure_is_part_of_the_update() -> None:
    """As LBFGS does, which calls the model many times in one optimizer step."""
    script = SimulatedScript(optimizers=1)
    for _ in range(2):
        for _ in range(20):
            script.train()
            script.finder.backward_ended()
        script.step()
    assert script.ends == ["train 32x8"] * 2
    assert script.finder.kinds["train 32x8"].unit == StepUnit(calls=20, backwards=20, updates=1)
