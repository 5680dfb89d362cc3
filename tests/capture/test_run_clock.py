"""A script's life divided into parts, on clocks that the test moves."""

from __future__ import annotations

import pytest

from boundby.capture.process.run_clock import RunClock
from boundby.model.run import RunParts

MS = 1_000_000
MODEL, TEACHER = 1, 2


class Script:
    """A script that does nothing but let time go by."""

    def __init__(self) -> None:
        self.now = self.cpu = self.compiled = 0
        self.run = RunClock(lambda: self.now, lambda: self.cpu, lambda: float(self.compiled))

    def spend(self, ms: float, *, asleep: bool = False) -> None:
        self.now += int(ms * MS)
        self.cpu += 0 if asleep else int(ms * MS)

    def during(self, part: str, ms: float, where: str | None = None) -> None:
        self.run.enter(part, where)  # type: ignore[arg-type]
        self.spend(ms)
        self.run.leave()

    def train(self, steps: int = 1, ms: float = 10, key: int = MODEL) -> None:
        for _ in range(steps):
            self.run.model_called(key, True)
            self.spend(ms / 2)
            self.run.backward_begins()
            self.spend(ms / 2)
            self.run.step_ended("train")

    def evaluate(
        self,
        calls: int,
        ms: float = 5,
        key: int = MODEL,
        *,
        rollout: bool = False,
        records: bool = False,
    ) -> None:
        for _ in range(calls):
            self.run.model_called(
                key, False, in_training=rollout, records=records, where="eval.py:7"
            )
            self.spend(ms)

    def parts(self, *, is_cut: bool = False) -> RunParts:
        return self.run.parts("train", is_cut=is_cut)


def ms_of(parts: RunParts) -> dict[str, float]:
    return {part.name: part.ns / MS for part in parts.parts}


def test_parts_of_the_run_add_up_to_its_wall_time() -> None:
    script = Script()
    script.during("import", 300, "torch")
    script.spend(50)
    script.train(10)
    script.evaluate(6)
    script.during("checkpoint", 20, "train.py:9")
    script.train(10)
    script.spend(4)
    parts = script.parts()
    assert ms_of(parts) == {
        "import": 300,
        "train": 200,
        "setup": 50,
        "eval": 30,
        "checkpoint": 20,
        "other": 4,
    }
    assert parts.wall_ns == sum(part.ns for part in parts.parts)
    assert parts.step_share == pytest.approx(200 / 604)
    assert parts.scope == "the whole run"


def test_an_evaluation_is_counted_once_and_named_by_its_line() -> None:
    script = Script()
    script.train(3)
    script.evaluate(5)
    script.train(3)
    script.evaluate(5)
    found = script.parts().part("eval")
    assert found is not None
    assert (found.count, found.ns / MS, found.details) == (2, 50, {"eval.py:7": 50 * MS})
    assert found.repeated_ns == 25 * MS


def test_evaluation_that_records_gradients_is_counted_unless_a_backward_pass_follows() -> None:
    script = Script()
    script.train(3)
    script.evaluate(5, records=True)
    script.train(3)
    script.evaluate(5)
    script.train(3)
    script.evaluate(5, records=True)
    script.run.backward_begins()
    script.train(3)
    found = script.parts().part("eval")
    assert found is not None
    assert (found.count, found.recorded_ns / MS) == (3, 25)


def test_a_teacher_without_gradients_belongs_to_the_training_step() -> None:
    script = Script()
    for _ in range(5):
        script.evaluate(1, key=TEACHER)
        script.train()
    assert ms_of(script.parts()) == {"train": 75}


def test_the_parts_of_a_teacher_called_one_after_the_other_belong_to_the_training_step() -> None:
    script = Script()
    for _ in range(5):
        for part in range(4):
            script.evaluate(1, key=TEACHER + part)
        script.train()
    assert ms_of(script.parts()).keys() == {"train"}


def test_model_trained_in_evaluation_mode_counts_as_training() -> None:
    script = Script()
    for _ in range(4):
        script.evaluate(1)
        script.run.backward_begins()
        script.spend(5)
        script.run.step_ended("train")
    assert ms_of(script.parts()) == {"train": 40}


def test_calls_in_training_mode_without_gradients_are_rollouts() -> None:
    script = Script()
    script.train(2)
    script.evaluate(100, rollout=True)
    script.train(2)
    assert ms_of(script.parts())["rollout"] == 500


def test_forward_only_script_is_inference() -> None:
    script = Script()
    for _ in range(4):
        script.run.model_called(MODEL, True)
        script.spend(10)
        script.run.step_ended("forward 8", mode="forward")
    assert ms_of(script.parts()) == {"eval": 40}


def test_evaluations_alone_have_no_number_of_steps() -> None:
    script = Script()
    script.evaluate(5)
    assert script.parts(is_cut=True).scope == "the run until boundby ended it"


def test_a_run_cut_short_extrapolates_to_the_end_of_its_epoch() -> None:
    script = Script()
    script.run.loader_started(7, 70, 100, 0, "train.py:5")
    for _ in range(20):
        script.spend(1)
        script.run.batch_came(1 * MS, 70)
        script.train(ms=9)
    parts = script.parts(is_cut=True)
    train = parts.part("train")
    assert train is not None and train.extrapolated
    assert train.count == 100
    assert train.ns / MS == pytest.approx(1000, rel=0.01)
    assert "80 steps left" in parts.scope


def test_an_epoch_that_was_seen_whole_needs_no_extrapolation() -> None:
    script = Script()
    for epoch in range(2):
        script.run.loader_started(7, 70 + epoch, 5, 0, "train.py:5")
        for _ in range(5):
            script.run.batch_came(0, 70 + epoch)
            script.train()
    assert not script.parts(is_cut=True).extrapolated
    assert script.run.seen_epochs == 1
    assert script.run.epoch_left_ns is None


def test_restarted_workers_are_distinguished_from_the_first_start() -> None:
    script = Script()
    for epoch in range(3):
        script.run.enter("data_start", "train.py:5")
        script.spend(100)
        script.run.leave()
        script.run.loader_started(7, 70 + epoch, 5, 4, "train.py:5")
        script.spend(60)
        script.run.batch_came(60 * MS, 70 + epoch)
        script.train(5)
    found = script.parts().part("data_start")
    assert found is not None
    assert found.ns / MS == 480
    assert found.repeated_ns / MS == 320
    assert found.count == 3


def test_compile_time_is_not_part_of_its_step() -> None:
    script = Script()
    script.train(3)
    script.run.model_called(MODEL, True)
    script.spend(500)
    script.compiled += 480 * MS
    script.run.backward_begins()
    script.run.step_ended("train")
    assert ms_of(script.parts()) == {"compile": 480, "train": 50}


def test_slow_first_step_counts_as_set_up() -> None:
    script = Script()
    script.train(ms=400)
    script.train(5)
    assert ms_of(script.parts()) == {"setup": 390, "train": 60}


@pytest.mark.parametrize("asleep, part", [(True, "idle"), (False, "other")])
def test_long_pause_between_steps_is_not_training(asleep: bool, part: str) -> None:
    script = Script()
    for _ in range(10):
        script.spend(1)
        script.train()
    script.spend(3000, asleep=asleep)
    script.train()
    assert ms_of(script.parts())[part] == 3000


def test_longer_steps_after_a_new_start_are_no_pauses() -> None:
    script = Script()
    for _ in range(10):
        script.spend(1)
        script.run.step_ended("forward")
    script.run.start_over()
    for _ in range(3):
        script.spend(300)
        script.run.step_ended("train")
    assert "other" not in ms_of(script.parts())


def test_a_pause_that_the_compiler_fills_is_not_idle() -> None:
    script = Script()
    for _ in range(10):
        script.spend(1)
        script.train()
    script.spend(3000, asleep=True)
    script.compiled += 2500 * MS
    script.train()
    parts = ms_of(script.parts())
    assert parts["compile"] == 3000
    assert "idle" not in parts


def test_sleep_while_the_device_works_is_part_of_the_steps() -> None:
    script = Script()
    for _ in range(10):
        script.spend(1)
        script.train()
    script.run.step_ended("train", is_queued=True)
    script.spend(3000, asleep=True)
    script.train()
    assert ms_of(script.parts()) == {"setup": 1, "train": 9 * 11 + 10 + 3000 + 10}


def test_profiled_steps_count_with_usual_step_time() -> None:
    script = Script()
    script.train(9)
    script.run.model_called(MODEL, True)
    script.spend(90)
    script.run.step_ended("train", distorted=True)
    script.run.own(0)
    assert ms_of(script.parts()) == {"train": 100}


def test_time_of_boundby_is_excluded() -> None:
    script = Script()
    script.train(2)
    script.spend(700)
    script.run.own(700 * MS)
    script.train(2)
    assert ms_of(script.parts()) == {"train": 40}


def test_single_call_in_training_mode_is_part_of_the_step() -> None:
    script = Script()
    for _ in range(4):
        script.train()
        script.evaluate(1, rollout=True)
    script.train()
    assert ms_of(script.parts()) == {"train": 70}


def test_calls_in_training_mode_with_batches_of_a_loader_are_an_evaluation() -> None:
    """A rollout steps an environment; a loader's batches are data to evaluate on."""
    script = Script()
    script.train(2)
    for _ in range(5):
        script.run.batch_came(0)
        script.run.model_called(MODEL, False, in_training=True, where="train.py:9")
        script.spend(6)
    script.train(1)
    parts = ms_of(script.parts())
    assert parts["eval"] == 30 and "rollout" not in parts


def test_calls_in_training_mode_on_batches_as_large_as_in_training_are_an_evaluation() -> None:
    """A rollout steps environments one by one, or a few at once: not a whole training batch."""
    parts = {}
    for shape in ((32, 8), (500, 8), (4, 8)):
        script = Script()
        script.run.model_called(MODEL, True, shape=(32, 8))
        script.spend(10)
        script.run.backward_begins()
        script.run.step_ended("train")
        for _ in range(5):
            script.run.model_called(MODEL, False, in_training=True, shape=shape)
            script.spend(6)
        script.train(1)
        parts[shape] = ms_of(script.parts())
    assert parts[32, 8]["eval"] == parts[500, 8]["eval"] == 30
    assert parts[4, 8]["rollout"] == 30


@pytest.mark.parametrize("calls", [[(1, 8), (32, 8)], [(32, 8)]], ids=["acting", "sampled"])
def test_an_agents_action_and_targets_before_each_update_are_no_evaluation(
    calls: list[tuple[int, int]],
) -> None:
    """It acts on one observation, and computes targets on a batch from its replay buffer."""
    script = Script()
    for _ in range(4):
        for shape in calls:
            script.run.model_called(MODEL, False, in_training=True, shape=shape)
            script.spend(3)
        script.run.model_called(MODEL, True, shape=(32, 8))
        script.spend(10)
        script.run.backward_begins()
        script.run.step_ended("train")
    parts = ms_of(script.parts())
    assert "eval" not in parts and "rollout" not in parts
    assert parts["train"] == 4 * (10 + 3 * len(calls))


def test_the_share_of_steps_inside_rollouts_is_known() -> None:
    script = Script()
    script.train(1)
    for _ in range(2):
        script.train(4)
        for call in range(10):
            script.run.model_called(MODEL, False, in_training=True, where="ppo.py:7")
            if call:
                script.run.step_ended("forward", mode="forward")
            script.spend(6)
        script.run.model_called(MODEL, True)
        script.run.step_ended("forward", mode="forward")
        script.spend(10)
        script.run.backward_begins()
        script.run.step_ended("train")
    parts = script.run.parts("forward", is_cut=False)
    assert ms_of(parts)["rollout"] == 120
    assert parts.step_share == pytest.approx(120 / (120 + 10 + 80 + 20))
    trained = script.run.parts("train", is_cut=False)
    assert trained.step_share == pytest.approx(110 / 230)


def test_time_after_the_end_of_the_script_is_excluded() -> None:
    """The row of evaluations is still open then; the profile is read, which takes seconds."""
    script = Script()
    script.train(3)
    script.evaluate(5, ms=4)
    script.run.stop()
    script.spend(9_000)
    parts = script.parts()
    assert ms_of(parts) == {"train": 30, "eval": 20}
    assert parts.wall_ns == 50 * MS
