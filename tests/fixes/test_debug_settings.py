"""Settings that are switched off are restored to the script's last choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.fixes import debug_settings, gradients, threads  # noqa: E402
from boundby.fixes.switch import Program, Switch  # noqa: E402

distribution = torch.distributions.Distribution


def settings() -> list[Any]:
    return [
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.benchmark,
        distribution._validate_args,
        torch.get_num_threads(),
        torch.set_anomaly_enabled,
    ]


@pytest.fixture
def slow() -> Iterator[None]:
    """Everything on that costs time, and put back after the test."""
    threads_before, checks = torch.get_num_threads(), distribution._validate_args
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    distribution.set_default_validate_args(True)
    torch.set_num_threads(threads.usable_cores() + 3)
    yield
    torch.set_anomaly_enabled(False)
    torch.use_deterministic_algorithms(False)
    distribution.set_default_validate_args(checks)
    torch.set_num_threads(threads_before)


FIXES: list[tuple[Any, Callable[[], bool]]] = [
    (debug_settings.NO_ANOMALY_DETECTION, torch.is_anomaly_enabled),
    (debug_settings.NOT_DETERMINISTIC, torch.are_deterministic_algorithms_enabled),
    (
        debug_settings.UNFILLED_MEMORY,
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
    ),
    (debug_settings.CUDNN_BENCHMARK, lambda: not torch.backends.cudnn.benchmark),
    (debug_settings.UNCHECKED_DISTRIBUTIONS, lambda: distribution._validate_args),
    (threads.AS_MANY_AS_CORES, lambda: torch.get_num_threads() > threads.usable_cores()),
]


def switch_of(fix: Any, *models: Any) -> Switch:
    switch: Switch | None = fix.switch_for(Program(torch=torch, models=list(models)))
    assert switch is not None
    return switch


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("fix", "is_slow"), FIXES, ids=lambda one: getattr(one, "name", ""))
def test_a_setting_is_switched_and_restored(fix: Any, is_slow: Callable[[], bool]) -> None:
    before, switch = settings(), switch_of(fix)
    for _ in range(2):
        switch.on()
        assert not is_slow()
        switch.off()
        assert settings() == before


def test_anomaly_detection_around_each_step_is_off_as_well() -> None:
    switch = switch_of(debug_settings.NO_ANOMALY_DETECTION)
    switch.on()
    with torch.autograd.set_detect_anomaly(True):
        assert not torch.is_anomaly_enabled()
    with torch.autograd.detect_anomaly():
        assert not torch.is_anomaly_enabled()
    switch.off()
    assert not torch.is_anomaly_enabled()
    switch.on()
    torch.autograd.set_detect_anomaly(True)  # what the script wants from now on
    switch.off()
    assert torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(False)


def test_only_models_in_evaluation_mode_run_without_gradients() -> None:
    model = torch.nn.Linear(2, 2)
    switch = switch_of(gradients.UNRECORDED_EVALUATION, model)
    x = torch.ones(1, 2)
    switch.on()
    assert model(x).requires_grad
    model.eval()
    assert not model(x).requires_grad and torch.is_grad_enabled()
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    assert torch.is_grad_enabled()
    switch.off()
    assert model(x).requires_grad
    assert not model._forward_hooks and not model._forward_pre_hooks
