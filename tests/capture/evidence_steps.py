"""Steps of which evidence is collected."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from boundby.capture.torch.evidence.collector import EvidenceCollector
from boundby.model.evidence import StepEvidence


def evidence_of(step: Callable[[], object], steps: int = 3) -> StepEvidence:
    """Of so many steps; optimizers tell the collector themselves, as the hooks have them do."""
    collector = EvidenceCollector(torch)
    step()
    collector.begin()
    handle = register_optimizer_step_pre_hook(
        lambda optimizer, *_: collector.optimizer_begins(optimizer)
    )
    try:
        for _ in range(steps):
            step()
            collector.step()
    finally:
        handle.remove()
    found = collector.evidence()
    assert not collector.failed
    return found


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
