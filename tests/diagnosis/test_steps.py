"""What a script is told in which no step was found."""

from __future__ import annotations

from typing import Literal

import pytest

from boundby.diagnosis.steps import require_step
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation, ObservedDevice


@pytest.mark.parametrize(
    ("framework", "calls", "said", "unsaid"),
    [
        ("jax", 0, "under jax.jit", "optimizer steps"),
        ("jax", 1, "take fewer in a call", "--step-by"),
        ("jax", 40, "under jax.jit", "take fewer"),
        ("torch", 40, "--step-by forward", "jax.jit"),
    ],
)
def test_a_missing_step_is_explained_in_the_words_of_the_framework(
    framework: Literal["torch", "jax"], calls: int, said: str, unsaid: str
) -> None:
    observation = Observation(
        source=framework,
        framework=framework,
        device=ObservedDevice(kind="cpu"),
        seen={"calls": calls, "marks": 0},
    )
    with pytest.raises(BoundbyError) as error:
        require_step(observation)
    assert said in str(error.value)
    assert unsaid not in str(error.value)
