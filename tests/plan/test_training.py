"""Properties of a planned step: parts add up, physics is monotone, units hold."""

import dataclasses

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boundby
from boundby.model.errors import BoundbyError
from boundby.plan import chips, models
from boundby.plan.chips import Target
from boundby.plan.mesh import Mesh, parse
from boundby.plan.result import memory_bytes, plan_training
from boundby.plan.training import Training, plan_step

LLAMA = models.MODELS["llama-3.1-8b"]
JOB = Training(sequence=4096, batch=64)
MESHES = st.sampled_from(
    [
        Mesh(fsdp=8),
        Mesh(fsdp=8, zero=1),
        Mesh(data=2, fsdp=4, tensor=2),
        Mesh(tensor=8),
        Mesh(tensor=2, pipeline=4, fsdp=2, zero=1),
        Mesh(tensor=2, context=2, fsdp=8),
    ]
)


def _faster(target: Target, *, memory: float = 1, matmul: float = 1, link: float = 1) -> Target:
    roofs = [
        msgspec.structs.replace(
            roof, value=roof.value * (memory if roof.name.startswith("memory") else matmul)
        )
        for roof in target.machine.roofs
    ]
    return dataclasses.replace(
        target,
        machine=msgspec.structs.replace(target.machine, roofs=roofs),
        sustained={unit: rate * matmul for unit, rate in target.sustained.items()},
        link=target.link * link,
        fabric=msgspec.structs.replace(target.fabric, egress=target.fabric.egress * link),
    )


@settings(deadline=None, max_examples=20)
@given(MESHES, st.sampled_from(["h100", "a100", "b200", "v5p", "mi300x"]))
def test_the_parts_add_up_to_the_step(mesh: Mesh, chip: str) -> None:
    plan = plan_training(LLAMA, mesh, JOB, chips.find(chip))
    assert sum(term.exposed_ns for term in plan.terms) == pytest.approx(plan.step_ns.expected)
    assert all(0 <= term.exposed_ns <= term.total_ns * 1.0001 for term in plan.terms)
    assert plan.step_ns.low <= plan.step_ns.expected <= plan.step_ns.high
    assert plan.overlapped_ns <= plan.serial_ns


@settings(deadline=None, max_examples=20)
@given(MESHES, st.sampled_from(["memory", "matmul", "link"]))
def test_a_faster_chip_is_never_slower(mesh: Mesh, part: str) -> None:
    h100 = chips.find("h100")
    faster = _faster(h100, **{part: 2.0})
    now = plan_step(LLAMA, mesh, JOB, h100).expected_ns
    assert plan_step(LLAMA, mesh, JOB, faster).expected_ns <= now * 1.0001


def test_nothing_beats_the_roofline() -> None:
    for chip in ("h100", "a100", "v5e", "b200"):
        plan = plan_training(LLAMA, Mesh(fsdp=8), JOB, chips.find(chip))
        assert plan.mfu is not None
        assert plan.hfu is not None
        assert 0 < plan.mfu <= plan.hfu < 1


def test_twice_the_batch_is_about_twice_the_time() -> None:
    target = chips.find("h100")
    one = plan_step(LLAMA, Mesh(fsdp=8), JOB, target).expected_ns
    two = plan_step(
        LLAMA, Mesh(fsdp=8), msgspec.structs.replace(JOB, batch=128), target
    ).expected_ns
    assert 1.9 < two / one <= 2.0


def test_full_recomputation_costs_a_third_and_saves_memory() -> None:
    target = chips.find("h100")
    full = msgspec.structs.replace(JOB, recompute="full")
    mesh = Mesh(fsdp=8)
    ratio = (
        plan_step(LLAMA, mesh, full, target).compute.ns
        / plan_step(LLAMA, mesh, JOB, target).compute.ns
    )
    assert 1.25 < ratio < 1.4
    assert memory_bytes(LLAMA, mesh, full) < memory_bytes(LLAMA, mesh, JOB)


def test_interleaving_divides_the_bubble() -> None:
    target = chips.find("h100")
    plain = plan_step(LLAMA, Mesh(pipeline=4, fsdp=2, zero=1), JOB, target)
    split = plan_step(LLAMA, Mesh(pipeline=4, interleave=4, fsdp=2, zero=1), JOB, target)
    assert split.bubble_ns == pytest.approx(plain.bubble_ns / 4, rel=0.05)


def test_narrow_heads_on_small_models_are_bound_by_the_host() -> None:
    """Few tokens on many chips: the host issues operators slower than the device runs them."""
    job = Training(sequence=512, batch=8)
    plan = plan_training(models.MODELS["gpt2"], Mesh(fsdp=8), job, chips.find("h100"))
    assert plan.bound_by == "overhead"


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ("tensor=3", "tensor=2 would"),
        ("pipeline=64", "at most 32"),
        ("expert=8,fsdp=8", "has no experts"),
        ("fsdp=128", "does not fill 128 replicas"),
    ],
)
def test_layouts_that_cannot_run_say_what_would(mesh: str, message: str) -> None:
    with pytest.raises(BoundbyError, match=message):
        plan_training(LLAMA, parse(mesh), JOB, chips.find("h100"))


def test_a_model_that_does_not_fit_says_what_would() -> None:
    plan = boundby.plan("llama-3.1-70b", "h100", "fsdp=8", batch=8, recompute="none")
    assert not plan.fits
    assert "would" in plan.notes[0]


def test_the_package_is_callable() -> None:
    import boundby.plan as package

    plan = package("llama-3.1-8b", "h100", "fsdp=64", batch="4M-tokens")  # type: ignore[operator]
    assert plan.chips == 64
    assert plan.tokens == 4 * 1024**2
