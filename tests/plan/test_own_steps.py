"""Steps of this project on one H200, planned from configs alone (all: docs/figures/plan.md)."""

import statistics
from typing import NamedTuple

import msgspec
import pytest

from boundby.model.estimate import Estimate
from boundby.plan import chips, models
from boundby.plan.layers import Attention
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.result import step_range
from boundby.plan.simulated import simulated_step
from boundby.plan.training import Training

LARGE = models.MODELS["bert-large"]
HALF = msgspec.structs.replace(LARGE, layers=12)
BASE = msgspec.structs.replace(HALF, hidden=768, heads=12, kv_heads=12, ffn=3072)
GPT2 = models.MODELS["gpt2"]
LLAMA = msgspec.structs.replace(
    models.MODELS["llama-2-7b"],
    layers=16,
    hidden=2048,
    heads=32,
    kv_heads=8,
    head_dim=64,
    ffn=5632,
)
VIT = msgspec.structs.replace(BASE, vocab=0, tokens=197)


class Step(NamedTuple):
    """A step of benchmarks/workloads.py and its median in benchmarks/ledgers."""

    config: ModelConfig
    sequence: int
    batch: int
    attention: Attention
    compiled: bool
    measured_ms: float

    @property
    def planned(self) -> Estimate:
        """In ms."""
        job = Training(
            sequence=self.sequence,
            batch=self.batch,
            micro_batch=self.batch,
            attention=self.attention,
            compiled=self.compiled,
        )
        span = step_range(simulated_step(self.config, Mesh(), job, chips.find("h200")), self.config)
        return Estimate(low=span.low / 1e6, expected=span.expected / 1e6, high=span.high / 1e6)


INSIDE = [
    Step(HALF, 512, 8, "eager", False, 42.0),
    Step(HALF, 512, 16, "eager", False, 61.2),
    Step(HALF, 512, 8, "fused", False, 32.2),
    Step(HALF, 512, 8, "fused", True, 20.2),
    Step(GPT2, 1024, 8, "eager", False, 91.8),
    Step(GPT2, 1024, 16, "eager", False, 173.1),
    Step(GPT2, 1024, 8, "eager", True, 34.0),
    Step(GPT2, 1024, 8, "fused", True, 24.7),
    Step(LLAMA, 1024, 4, "eager", False, 139.7),
    Step(LLAMA, 1024, 8, "eager", False, 245.0),
    Step(LLAMA, 1024, 4, "eager", True, 72.2),
    Step(LLAMA, 1024, 4, "fused", True, 49.7),
    Step(VIT, 197, 64, "fused", False, 28.5),
    Step(VIT, 197, 128, "fused", False, 49.7),
    Step(VIT, 197, 64, "fused", True, 22.3),
]
OUTSIDE = [
    Step(LARGE, 512, 8, "eager", False, 84.2),
    Step(GPT2, 1024, 8, "fused", False, 59.7),
    Step(BASE, 128, 1, "eager", False, 52.2),
    Step(HALF, 512, 8, "eager", True, 25.1),
    Step(LLAMA, 1024, 4, "fused", False, 85.8),
]


@pytest.mark.parametrize("step", INSIDE)
def test_the_measured_step_is_in_the_planned_range(step: Step) -> None:
    assert step.planned.low <= step.measured_ms <= step.planned.high


def test_the_mean_error_over_all_steps_is_below_15_percent() -> None:
    errors = [abs(one.planned.expected / one.measured_ms - 1) for one in INSIDE + OUTSIDE]
    assert statistics.mean(errors) < 0.15


def test_a_compiler_fuses_the_softmax_of_eager_attention() -> None:
    eager = Step(GPT2, 1024, 8, "eager", True, 0.0).planned.expected
    assert eager == Step(GPT2, 1024, 8, "softmax", True, 0.0).planned.expected
