"""Properties of plans over models, chips, meshes and jobs of any kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from boundby.hardware import datasheet
from boundby.model.errors import BoundbyError
from boundby.plan import chips, collectives, layout_check, serving
from boundby.plan.chips import Target
from boundby.plan.layers import Recompute
from boundby.plan.mesh import Group, Mesh
from boundby.plan.model_config import Latent, ModelConfig
from boundby.plan.result import memory_bytes, plan_training
from boundby.plan.serving import Service
from boundby.plan.simulated import simulated_step
from boundby.plan.training import Training

ANY = settings(deadline=None, max_examples=40, derandomize=True)
# Rounding to whole tiles and tokens; and what a simulated step may differ by where the host is
# behind, since one micro-batch stands for all later ones.
ROUNDING, APPROXIMATE = 1.0001, 1.05
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
PARTS = ("matmul", "memory", "vector", "link", "egress")
CHIPS = [
    found.name
    for found in map(chips.find, (chip.name for chip in datasheet.chips()))
    if found.machine.rate(found.unit_of("matmul.bfloat16")) and found.machine.rate("memory.dram")
]
TARGETS = st.sampled_from(CHIPS).map(chips.find)
WAYS = st.sampled_from([1, 1, 2, 4, 8])


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    heads = draw(st.sampled_from([8, 12, 16, 32, 40, 64]))
    head_dim = draw(st.sampled_from([64, 96, 128]))
    kv_heads = draw(st.sampled_from([ways for ways in (1, 2, 4, 8, heads) if heads % ways == 0]))
    experts = draw(st.sampled_from([0, 0, 8, 64]))
    causal = draw(st.booleans())
    window = draw(st.sampled_from([None, 128, 4096])) if causal else None
    latent = Latent(q_rank=512, kv_rank=256, nope_dim=head_dim, rope_dim=32, value_dim=head_dim)
    return ModelConfig(
        name="any",
        layers=draw(st.integers(2, 96)),
        hidden=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=128 * draw(st.integers(8, 256)),
        vocab=draw(st.sampled_from([0, 32000, 50257, 128256])),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        causal=causal,
        experts=experts,
        active_experts=draw(st.integers(1, 8)) if experts else 0,
        moe_ffn=128 * draw(st.integers(4, 64)) if experts else 0,
        shared_experts=draw(st.integers(0, 2)) if experts else 0,
        dense_layers=draw(st.integers(0, 1)) if experts else 0,
        window=window,
        windowed=draw(st.sampled_from([0.5, 1.0])) if window else 0.0,
        latent=latent if draw(st.booleans()) and causal else None,
    )


class Case(NamedTuple):
    config: ModelConfig
    mesh: Mesh
    job: Training
    target: Target


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A job that can run: any model, chip and layout whose sizes divide."""
    config, target = draw(configs()), draw(TARGETS)
    pipeline = draw(WAYS)
    mesh = Mesh(
        data=draw(WAYS),
        fsdp=draw(WAYS),
        zero=draw(st.integers(1, 3)),
        tensor=draw(WAYS),
        context=draw(WAYS),
        pipeline=pipeline,
        interleave=draw(st.sampled_from([1, 2])) if pipeline > 1 else 1,
        expert=draw(WAYS),
        sequence=draw(st.booleans()),
    )
    micro = draw(st.sampled_from([1, 2]))
    job = Training(
        sequence=draw(st.sampled_from([256, 4096, 65536])),
        batch=mesh.replicas * micro * draw(st.sampled_from([1, 2, 16])),
        micro_batch=micro,
        precision=draw(st.sampled_from(["bf16", "fp16", "fp8", "mxfp8", "int8", "nvfp4"])),
        recompute=draw(st.sampled_from(RECOMPUTE)),
        attention=draw(st.sampled_from(["fused", "softmax", "eager"])),
        overlap=draw(st.booleans()),
        compiled=draw(st.booleans()),
    )
    try:
        layout_check.check(config, mesh, job, target)
    except BoundbyError:
        assume(False)
    return Case(config, mesh, job, target)


def _faster(target: Target, part: str) -> Target:
    """The chip with twice the rate of one part."""
    times = {"matmul": ("matmul", 2.0), "memory": ("memory", 2.0), "vector": ("vector", 2.0)}
    name, factor = times.get(part, ("", 1.0))
    roofs = [
        msgspec.structs.replace(roof, value=roof.value * factor)
        if name and roof.name.startswith(name)
        else roof
        for roof in target.machine.roofs
    ]
    fabric, link = target.fabric, target.link
    if part == "egress":
        fabric = msgspec.structs.replace(fabric, egress=2 * fabric.egress)
    if part == "link":
        axis = 2 * fabric.axis_link if fabric.axis_link else None
        fabric, link = msgspec.structs.replace(fabric, axis_link=axis), 2 * link
    rate = 2.0 if part == "matmul" else 1.0
    return dataclasses.replace(
        target,
        machine=msgspec.structs.replace(target.machine, roofs=roofs),
        sustained={unit: rate * value for unit, value in target.sustained.items()},
        fabric=fabric,
        link=link,
    )


def _seconds(case: Case) -> float:
    return simulated_step(*case).expected_ns * 1e-9


@ANY
@given(cases())
def test_parts_add_up_to_a_step_between_perfect_overlap_and_none(case: Case) -> None:
    plan = plan_training(*case)
    assert sum(term.exposed_ns for term in plan.terms) == pytest.approx(plan.step_ns.expected)
    assert all(0 <= term.exposed_ns <= term.total_ns * ROUNDING for term in plan.terms)
    assert plan.overlapped_ns <= plan.step_ns.expected * ROUNDING
    assert plan.step_ns.expected <= plan.serial_ns * ROUNDING
    assert 0 < plan.step_ns.low <= plan.step_ns.expected <= plan.step_ns.high


@ANY
@given(cases())
def test_units_and_rooflines_hold(case: Case) -> None:
    """Rates are per second and chip; no step is faster than its arithmetic at the printed rate."""
    plan = plan_training(*case)
    seconds = plan.step_ns.expected * 1e-9
    assert plan.tokens == case.job.batch * case.job.sequence
    assert plan.tokens_per_s_per_chip == pytest.approx(plan.tokens / seconds / plan.chips)
    assert plan.mfu is not None
    assert plan.hfu is not None
    assert 0 < plan.mfu < 1
    assert 0 < plan.hfu < 1
    assert sum(part.bytes for part in plan.memory) == pytest.approx(
        memory_bytes(case.config, case.mesh, case.job)
    )


@ANY
@given(cases(), st.sampled_from(PARTS))
def test_a_faster_chip_is_never_slower(case: Case, part: str) -> None:
    faster = case._replace(target=_faster(case.target, part))
    assert _seconds(faster) <= _seconds(case) * APPROXIMATE


@ANY
@given(cases())
def test_more_work_is_never_faster(case: Case) -> None:
    job, config = case.job, case.config
    more = {
        "batch": case._replace(job=msgspec.structs.replace(job, batch=2 * job.batch)),
        "sequence": case._replace(job=msgspec.structs.replace(job, sequence=2 * job.sequence)),
        "layers": case._replace(config=msgspec.structs.replace(config, layers=2 * config.layers)),
        "ffn": case._replace(
            config=msgspec.structs.replace(config, ffn=2 * config.ffn, moe_ffn=2 * config.moe_ffn)
        ),
    }
    now = _seconds(case)
    for name, other in more.items():
        assert now <= _seconds(other) * APPROXIMATE, name


@ANY
@given(cases())
def test_recomputation_trades_time_for_memory(case: Case) -> None:
    jobs = [msgspec.structs.replace(case.job, recompute=level) for level in RECOMPUTE]
    none, some, full = (_seconds(case._replace(job=job)) for job in jobs)
    assert none <= some * APPROXIMATE
    assert some <= full * APPROXIMATE
    kept, less, least = (memory_bytes(case.config, case.mesh, job) for job in jobs)
    assert less <= kept
    # One whole layer is complete while it is recomputed.
    assert least <= kept * (1 + 2 * case.mesh.pipeline / case.config.layers)


@ANY
@given(cases())
def test_sharding_more_states_never_takes_more_memory(case: Case) -> None:
    """But for ZeRO-3's buffers of gathered weights."""
    held = [
        memory_bytes(case.config, msgspec.structs.replace(case.mesh, zero=zero), case.job)
        for zero in (1, 2)
    ]
    assert held[1] <= held[0]


@ANY
@given(cases())
def test_overlap_is_never_slower(case: Case) -> None:
    apart = case._replace(job=msgspec.structs.replace(case.job, overlap=False))
    beside = case._replace(job=msgspec.structs.replace(case.job, overlap=True))
    assert _seconds(beside) <= _seconds(apart) * APPROXIMATE


GROUPS = st.builds(
    lambda local, domains, wraps, rings: Group(
        size=local * domains, local=local, domains=domains, wraps=wraps, rings=rings
    ),
    st.integers(1, 16),
    st.integers(1, 512),
    st.booleans(),
    st.integers(1, 3),
)
COLLECTIVES = st.sampled_from(
    [
        collectives.all_gather_ns,
        collectives.reduce_scatter_ns,
        collectives.all_reduce_ns,
        collectives.all_to_all_ns,
    ]
)


@ANY
@given(COLLECTIVES, st.integers(1, 10**11), GROUPS, TARGETS, st.sampled_from(["link", "egress"]))
def test_collectives_grow_with_bytes_and_never_with_bandwidth(
    collective: Callable[[float, Group, Target], float],
    size: int,
    group: Group,
    target: Target,
    part: str,
) -> None:
    now = collective(size, group, target)
    assert now >= 0
    assert collective(2 * size, group, target) >= now
    assert collective(size, group, _faster(target, part)) <= now


SERVICES = st.builds(
    Service,
    batch=st.sampled_from([1, 4, 32, 256]),
    input_tokens=st.sampled_from([1, 16, 1024, 32768]),
    output_tokens=st.sampled_from([1, 16, 512]),
    tensor=WAYS,
    pipeline=st.sampled_from([1, 2]),
    weights=st.sampled_from(["bfloat16", "int8", "int4", "float8"]),
)


@ANY
@given(configs(), SERVICES, TARGETS, st.sampled_from(PARTS))
def test_a_service_on_a_faster_chip_is_never_slower(
    config: ModelConfig, service: Service, target: Target, part: str
) -> None:
    assume(config.heads % service.tensor == 0)
    faster = _faster(target, part)
    for batch in (1, service.batch):
        step = serving.decode(config, service, target, batch)
        assert step.ns == pytest.approx(sum(step))
        assert serving.decode(config, service, faster, batch).ns <= step.ns * ROUNDING
        first = serving.prefill_ns(config, service, target, batch)
        assert serving.prefill_ns(config, service, faster, batch) <= first * ROUNDING


@ANY
@given(configs(), SERVICES, TARGETS)
def test_a_token_takes_at_least_the_time_to_read_what_it_needs(
    config: ModelConfig, service: Service, target: Target
) -> None:
    """Weights of the layers (of experts, those of one token) and the keys and values."""
    assume(config.heads % service.tensor == 0)
    step = serving.decode(config, service, target, service.batch)
    weights = (config.active_params - config.vocab * config.hidden) * service.weight_bytes
    tokens = service.input_tokens + service.output_tokens / 2
    cache = serving.cache_bytes_per_sequence(config, service, tokens) * service.pipeline
    read = weights / service.tensor + service.batch * cache
    assert step.ns * 1e-9 >= 0.99 * read / target.memory_rate
    more = serving.decode(config, service, target, 2 * service.batch)
    assert more.ns * ROUNDING >= step.ns
