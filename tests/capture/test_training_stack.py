"""Where optimizers are made, and which framework steps them, from the Python stack."""

from pathlib import Path

import pytest

from boundby.capture.torch.training_stack import TrainingStack


@pytest.mark.parametrize(
    "module, trainer",
    [
        ("transformers.trainer", "transformers"),
        ("sentence_transformers.trainer", "sentence_transformers"),
        ("lightning.pytorch.loops.loop", "lightning"),
        ("pytorch_lightning_like", None),
        ("train", None),
    ],
)
def test_the_framework_that_steps_the_optimizer_is_named(module: str, trainer: str | None) -> None:
    stack = TrainingStack()
    exec("def step(act): act()", names := {"__name__": module})
    names["step"](stack.optimizer_steps)  # type: ignore[operator]
    stack.optimizer_steps()
    assert stack.trainer == trainer


def test_each_line_that_makes_an_optimizer_is_named_once(tmp_path: Path) -> None:
    stack = TrainingStack()
    path = tmp_path / "train.py"
    code = compile("for _ in range(2):\n    make()\n", str(path), "exec")
    exec(code, {"make": stack.optimizer_made})
    assert [line.endswith("train.py:2") for line in stack.made_at] == [True]
