"""Mistakes that a machine can repair at a step boundary are measured, checked and kept."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.fixes import FIXES  # noqa: E402
from boundby.fixes.threads import usable_cores  # noqa: E402
from boundby.model.proof import Outcome  # noqa: E402
from tests.prove.test_same_process import Rig  # noqa: E402

# A program with one mistake: what a step does, and whether the mistake is still there.
Mistake = tuple[Callable[[Rig], None], Callable[[Rig], bool]]


def train(rig: Rig) -> Any:
    rig.optimizer.zero_grad()
    out = rig.model(torch.ones(4, 8))
    out.square().sum().backward()
    rig.optimizer.step()
    return out


def train_zeroing(rig: Rig) -> None:
    rig.model(torch.ones(4, 8)).square().sum().backward()
    rig.optimizer.step()
    rig.optimizer.zero_grad(set_to_none=False)


def train_in_anomaly_mode(rig: Rig) -> None:
    with torch.autograd.detect_anomaly(check_nan=False):
        rig.anomaly = torch.is_anomaly_enabled()  # type: ignore[attr-defined]
        train(rig)


def serve(rig: Rig) -> None:
    rig.model.eval()
    rig.result = rig.model(torch.ones(4, 8))  # type: ignore[attr-defined]


def train_with_samples(rig: Rig) -> None:
    train(rig)
    torch.distributions.Normal(torch.zeros(3), torch.ones(3)).log_prob(torch.ones(3))


MISTAKES: dict[str, Mistake] = {
    "no-anomaly-detection": (
        train_in_anomaly_mode,
        lambda rig: rig.anomaly,  # type: ignore[attr-defined]
    ),
    "not-deterministic": (train, lambda _: torch.are_deterministic_algorithms_enabled()),
    "unfilled-memory": (
        train,
        lambda _: torch.utils.deterministic.fill_uninitialized_memory,
    ),
    "unchecked-distributions": (
        train_with_samples,
        lambda _: torch.distributions.Distribution._validate_args,
    ),
    "as-many-threads-as-cores": (train, lambda _: torch.get_num_threads() > usable_cores()),
    "fused": (train, lambda rig: not rig.optimizer.param_groups[0]["fused"]),
    "no-grad": (serve, lambda rig: rig.result.requires_grad),  # type: ignore[attr-defined]
    "set-to-none": (
        train_zeroing,
        lambda rig: next(rig.model.parameters()).grad is not None,
    ),
}


@pytest.fixture
def settings() -> Iterator[None]:
    """The settings that the mistakes are about, as a script would have set them."""
    threads = torch.get_num_threads()
    distribution = torch.distributions.Distribution
    checks = distribution._validate_args  # torch.compile sets it for the whole process
    distribution.set_default_validate_args(True)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2 * usable_cores())
    try:
        yield
    finally:
        distribution.set_default_validate_args(checks)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_repaired_at_a_step_boundary(name: str) -> None:
    step, is_there = MISTAKES[name]
    rig = Rig()

    def timed_step() -> None:
        step(rig)
        rig.clock.s += 0.1 if is_there(rig) else 0.06

    rig.step = timed_step  # type: ignore[method-assign]
    found = rig.proofs(next(one for one in FIXES if one.name == name))[name]
    assert found.outcome is Outcome.KEPT, found.why
    timed_step()
    assert is_there(rig)  # and undone
