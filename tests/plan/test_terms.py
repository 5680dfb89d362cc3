"""Every part and limit that a plan prints is explained."""

import pytest

import boundby
from boundby.model.plan import PlanResult
from boundby.plan import chips, limits, models, requests, terms

PLANS = {
    "context": lambda: boundby.plan("llama-3.1-8b", "h100", "context=4,tensor=2,fsdp=8", batch=64),
    "experts": lambda: boundby.plan(
        "mixtral-8x7b", "h100", "fsdp=8,expert=8,data=4,pipeline=2,zero=1", batch=256
    ),
    "torus": lambda: boundby.plan("llama-3.1-8b", "v5p", "fsdp=64,tensor=4", batch=256),
    "product": lambda: requests.plan_matmul("512x8192x28672", "v5e", 2, "bf16"),
    "service": lambda: requests.plan_serving(
        "deepseek-v3", "h200", mesh="tensor=16,expert=16", input_tokens=512, output_tokens=128
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_parts_and_limits_are_explained_by_their_names(name: str) -> None:
    plan: PlanResult = PLANS[name]()
    assert set(plan.formulas) >= {term.formula for term in plan.terms}
    for limit in plan.limits:
        same = {"one all-reduce": "all-reduce"}.get(limit.name, limit.name)
        assert terms.explain(same)


@pytest.mark.parametrize("name", terms.names())
def test_every_term_has_a_text(name: str) -> None:
    assert len(terms.explain(name).splitlines()) > 2


def test_length_that_hides_ring_attention_matches_hand_arithmetic() -> None:
    """Llama 3.1 8B over 8 chips of a node: 8 x 2048 x 989e12 / (4096 x 450e9)."""
    config, h100 = models.MODELS["llama-3.1-8b"], chips.find("h100")
    found = limits.context_limit(h100, 8, 32 * 128, config.kv_elements_per_token, 450e9)
    assert found == pytest.approx(8796, rel=0.01)
