"""Steps of this project on one H200, planned from their configs alone (docs/plan.md has all)."""

import msgspec
import pytest

from boundby.plan import chips, models
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.result import step_range
from boundby.plan.simulated import simulated_step
from boundby.plan.training import Training

LARGE = models.MODELS["bert-large"]
BASE = msgspec.structs.replace(LARGE, layers=12, hidden=768, heads=12, kv_heads=12, ffn=3072)
GPT2 = models.MODELS["gpt2"]


@pytest.mark.parametrize(
    ("config", "sequence", "fused", "compiled", "measured_ms"),
    [
        (LARGE, 512, False, False, 84.2),
        (BASE, 512, False, False, 41.5),
        (BASE, 512, True, False, 31.7),
        (GPT2, 1024, True, True, 25.7),
    ],
)
def test_the_measured_step_is_in_the_planned_range(
    config: ModelConfig, sequence: int, fused: bool, compiled: bool, measured_ms: float
) -> None:
    job = Training(
        sequence=sequence, batch=8, micro_batch=8, fused_attention=fused, compiled=compiled
    )
    span = step_range(simulated_step(config, Mesh(), job, chips.find("h200")))
    assert span.low <= measured_ms * 1e6 <= span.high
