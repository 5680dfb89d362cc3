"""Properties of a planned service: parts add up, physics is monotone."""

from typing import Any

import pytest

from boundby.model.errors import BoundbyError
from boundby.model.plan import PlanResult
from boundby.plan import requests


def test_time_per_token_grows_with_the_batch_and_throughput_too() -> None:
    plan = requests.plan_serving(
        "llama-3.1-8b", "h100", count=1, batch=8, input_tokens=1024, output_tokens=256,
        precision="bf16", weights=None,
    )  # fmt: skip
    assert plan.serving is not None
    times = [ns for _, ns, _ in plan.serving.curve]
    rates = [rate for _, _, rate in plan.serving.curve]
    assert times == sorted(times)
    assert rates == sorted(rates)
    assert sum(term.exposed_ns for term in plan.terms) == pytest.approx(plan.step_ns.expected)


def _served(model: str, chip: str, **how: Any) -> PlanResult:
    return requests.plan_serving(model, chip, input_tokens=512, output_tokens=128, **how)


def test_spread_experts_exchange_their_tokens() -> None:
    shared = _served("deepseek-v3", "h200", mesh="tensor=16", batch=64)
    spread = _served("deepseek-v3", "h200", mesh="tensor=16,expert=16", batch=64)
    assert "tokens to experts" not in {term.name for term in shared.terms}
    links = {term.name: term.total_ns for term in spread.terms}
    assert links["tokens to experts"] > 0
    # 58 of its 61 layers have experts: one all-reduce less in each.
    before = {term.name: term.total_ns for term in shared.terms}["all-reduces"]
    assert links["all-reduces"] == pytest.approx(before * (2 * 61 - 58) / (2 * 61))


def test_stages_divide_the_weights_and_serve_batches_at_once() -> None:
    one = _served("llama-3.1-70b", "h100", mesh="tensor=8", batch=8)
    two = _served("llama-3.1-70b", "h100", mesh="tensor=8,pipeline=2", batch=8)
    assert two.chips == 16
    assert two.memory[0].bytes == pytest.approx(one.memory[0].bytes / 2)
    assert one.serving
    assert two.serving
    assert two.serving.output_tokens_per_s > 1.8 * one.serving.output_tokens_per_s


def test_four_bit_weights_are_half_of_eight_bit_ones_and_their_scales() -> None:
    """405 billion weights of 4 bits with a 8-bit scale for 16, and two tables of 16 bits."""
    plan = _served("llama-3.1-405b", "b200", count=8, precision="nvfp4")
    tables = 2 * 128256 * 16384
    expected = ((405.8e9 - tables) * (0.5 + 1 / 16) + 2 * tables) / 8
    assert plan.memory[0].bytes == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"mesh": "tensor=8,fsdp=2"}, "one replica is planned"),
        ({"mesh": "tensor=8,expert=8"}, "expert=1 would"),
        ({"mesh": "tensor=8", "count": 4}, "the mesh has 8 chips, not 4"),
        ({"mesh": "pipeline=64"}, "at most 32 stages would"),
        ({"batch": "1.5"}, "a whole batch"),
        ({"weights": "int3"}, "choose one of .*int4"),
    ],
)
def test_impossible_services_are_a_one_line_error(how: dict[str, Any], message: str) -> None:
    with pytest.raises(BoundbyError, match=message):
        _served("llama-3.1-8b", "h100", **how)


def test_cache_and_weight_bytes_match_hand_arithmetic() -> None:
    """Llama 3.1 70B: 2 x 8 heads x 128 x 80 layers x 2 B a token; 70.55 billion weights of 2 B."""
    plan = _served("llama-3.1-70b", "h100", count=8, batch=64)
    limits = {one.name: one.value for one in plan.limits}
    assert limits["keys and values"] == 2 * 8 * 128 * 80 * 2
    weights, cache = plan.memory
    assert weights.bytes == pytest.approx(70.55e9 * 2 / 8, rel=0.001)
    assert cache.bytes == 64 * 640 * limits["keys and values"] / 8


def test_published_weights_of_fewer_bits_are_served_as_they_are() -> None:
    plan = _served("deepseek-v3", "h200", count=8, batch=16)
    assert plan.fits
    assert plan.memory[0].bytes == pytest.approx(671e9 / 8, rel=0.01)
    assert any("weights in fp8" in note for note in plan.notes)
    with pytest.raises(BoundbyError, match="16 chips"):
        _served("deepseek-v3", "h200", count=8, batch=16, weights="bf16")


def test_an_encoder_generates_no_tokens() -> None:
    with pytest.raises(BoundbyError, match="bert-large generates no tokens"):
        _served("bert-large", "h100")


@pytest.mark.parametrize(
    ("count", "batch", "message"),
    [(3, 1, "2 would"), (1, 0, "of one at least")],
)
def test_impossible_service_reports_what_would_fit(count: int, batch: int, message: str) -> None:
    with pytest.raises(BoundbyError, match=message):
        requests.plan_serving(
            "llama-3.1-8b", "h100", count=count, batch=batch, input_tokens=8, output_tokens=8,
            precision="bf16", weights=None,
        )  # fmt: skip


def test_model_too_large_reports_the_chips_needed() -> None:
    with pytest.raises(BoundbyError, match="chips, or weights of fewer bits, would"):
        requests.plan_serving(
            "llama-3.1-405b", "h100", count=8, batch=1, input_tokens=8, output_tokens=8,
            precision="bf16", weights=None,
        )  # fmt: skip
