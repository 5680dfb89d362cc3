"""Properties of a planned service: parts add up, physics is monotone."""

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.model.errors import BoundbyError
from boundby.model.plan import PlanResult
from boundby.plan import chips, models, requests, serving
from boundby.plan.chips import Target
from boundby.plan.serving import Service

LLAMA = models.MODELS["llama-3.1-8b"]
SERVICES = st.builds(
    Service,
    batch=st.sampled_from([1, 4, 32]),
    input_tokens=st.sampled_from([16, 1024]),
    output_tokens=st.sampled_from([16, 512]),
    tensor=st.sampled_from([1, 2, 8]),
    weights=st.sampled_from(["bfloat16", "int8", "int4", "float8"]),
)


def _scaled(target: Target, part: str) -> Target:
    roofs = [
        msgspec.structs.replace(roof, value=roof.value * 2) if roof.name.startswith(part) else roof
        for roof in target.machine.roofs
    ]
    faster = dataclasses.replace(
        target, machine=msgspec.structs.replace(target.machine, roofs=roofs)
    )
    if part == "matmul":
        rates = {unit: 2 * rate for unit, rate in target.sustained.items()}
        return dataclasses.replace(faster, sustained=rates)
    return dataclasses.replace(faster, link=2 * target.link) if part == "network" else faster


@settings(deadline=None, max_examples=25)
@given(SERVICES, st.sampled_from(["memory", "matmul", "network", "vector"]))
def test_a_faster_chip_is_never_slower(service: Service, part: str) -> None:
    h100 = chips.find("h100")
    faster = _scaled(h100, part)
    batch = service.batch
    token = serving.decode(LLAMA, service, h100, batch).ns
    assert serving.decode(LLAMA, service, faster, batch).ns <= token * 1.0001
    first = serving.prefill_ns(LLAMA, service, h100, batch)
    assert serving.prefill_ns(LLAMA, service, faster, batch) <= first * 1.0001


@settings(deadline=None, max_examples=25)
@given(SERVICES)
def test_token_takes_at_least_its_memory_time(service: Service) -> None:
    h100 = chips.find("h100")
    step = serving.decode(LLAMA, service, h100, service.batch)
    read = serving.weight_bytes(LLAMA, service) - LLAMA.vocab * LLAMA.hidden * 2 / service.tensor
    assert step.ns * 1e-9 >= read / h100.memory_rate
    assert step.ns == pytest.approx(sum(step))


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
def test_services_that_make_no_sense_are_one_line(how: dict[str, Any], message: str) -> None:
    with pytest.raises(BoundbyError, match=message):
        _served("llama-3.1-8b", "h100", **how)


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
