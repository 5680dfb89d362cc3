"""A planned step: known ratios, impossible layouts, what is noted."""

import msgspec
import pytest

import boundby
from boundby.model.errors import BoundbyError
from boundby.plan import chips, models
from boundby.plan.mesh import Mesh, parse
from boundby.plan.result import memory_bytes, plan_training
from boundby.plan.training import Training, plan_step

LLAMA = models.MODELS["llama-3.1-8b"]
JOB = Training(sequence=4096, batch=64)


def test_no_prediction_exceeds_the_roofline() -> None:
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
        ("pipeline=64", "at most pipeline=32 would"),
        ("expert=8,fsdp=8", "has no experts"),
        ("fsdp=128", "does not fill 128 replicas"),
    ],
)
def test_impossible_layout_reports_what_would_fit(mesh: str, message: str) -> None:
    with pytest.raises(BoundbyError, match=message):
        plan_training(LLAMA, parse(mesh), JOB, chips.find("h100"))


def test_model_that_does_not_fit_reports_what_would() -> None:
    plan = boundby.plan("llama-3.1-70b", "h100", "fsdp=8", batch=8, recompute="none")
    assert not plan.fits
    assert any(note.startswith("does not fit") and "would" in note for note in plan.notes)


def test_plan_package_is_callable() -> None:
    import boundby.plan as package

    plan = package("llama-3.1-8b", "h100", "fsdp=64", batch="4M-tokens")  # type: ignore[operator]
    assert plan.chips == 64
    assert plan.tokens == 4 * 1024**2


def test_micro_batches_add_to_the_main_gradients() -> None:
    """Each further one reads and writes all float32 gradients, unless the products add them."""
    h100, mesh = chips.find("h100"), Mesh(fsdp=8, zero=1)
    job = Training(sequence=4096, batch=32, micro_batch=1)
    plain = plan_step(LLAMA, mesh, job, h100)
    fused = plan_step(LLAMA, mesh, msgspec.structs.replace(job, fused_accumulation=True), h100)
    assert plain.accumulation_ns >= 3 * 8 * LLAMA.params / h100.memory_rate * 1e9
    assert fused.accumulation_ns == 0
    sharded = plan_step(LLAMA, msgspec.structs.replace(mesh, zero=3), job, h100)
    assert sharded.accumulation_ns < plain.accumulation_ns / 4


def test_an_odd_vocabulary_slows_its_products_on_one_chip() -> None:
    """GPT-2's 50,257: measured on an H200, 91 to 145 TFLOP/s against 706 to 780 for 50,304."""
    job = Training(sequence=1024, batch=8, micro_batch=8)
    gpt2 = models.MODELS["gpt2"]
    padded = msgspec.structs.replace(gpt2, vocab=50304)
    h200 = chips.find("h200")
    odd = plan_step(gpt2, Mesh(), job, h200).head.matmul
    assert 3 * plan_step(padded, Mesh(), job, h200).head.matmul < odd
    sharded = Mesh(tensor=4)
    assert plan_step(gpt2, sharded, job, h200).head.matmul == pytest.approx(
        plan_step(padded, sharded, job, h200).head.matmul, rel=0.01
    )


def test_expert_capacity_gives_one_batch() -> None:
    """Equal groups have no padding on a TPU; each computes `capacity` times its even share."""
    mixtral, v5p = models.MODELS["mixtral-8x7b"], chips.find("v5p")
    job = Training(sequence=4096, batch=64, micro_batch=4)
    free = plan_step(mixtral, Mesh(fsdp=16), job, v5p)
    even = plan_step(mixtral, Mesh(fsdp=16), msgspec.structs.replace(job, capacity=1.0), v5p)
    more = plan_step(mixtral, Mesh(fsdp=16), msgspec.structs.replace(job, capacity=1.25), v5p)
    assert even.compute.matmul < more.compute.matmul < free.compute.matmul
    assert more.compute.flops > 1.1 * even.compute.flops


def test_chips_of_the_context_axis_gather_weights_and_sum_gradients() -> None:
    """They hold the same weights: as many bytes move as over replicas of that number."""
    target = chips.find("h100")
    job = msgspec.structs.replace(JOB, sequence=32768, batch=8, micro_batch=1)
    split = plan_step(LLAMA, Mesh(context=8), job, target)
    replicas = plan_step(LLAMA, Mesh(fsdp=8), job, target)
    times = {one.name: one.total_ns / split.micro_batches for one in split.traffic}
    others = {one.name: one.total_ns / replicas.micro_batches for one in replicas.traffic}
    assert times["weights"] == pytest.approx(others["weights"])
    assert times["gradients"] == pytest.approx(others["gradients"])


def test_the_critical_batch_of_experts_is_that_of_each_of_them() -> None:
    plan = boundby.plan("mixtral-8x7b", "h100", "fsdp=8,tensor=4", batch=64)
    dense = boundby.plan("llama-3.1-8b", "h100", "fsdp=8", batch=64)
    found = {limit.name: limit.value for limit in plan.limits}
    assert found["critical batch"] == pytest.approx(4 * dense.limits[0].value)
    assert 1 <= found["balanced FSDP"] <= 32


def test_a_layout_that_barely_fits_is_noted() -> None:
    notes = boundby.plan("llama-3.1-70b", "h100", "fsdp=64,tensor=2", batch=64).notes
    barely = boundby.plan("llama-3.1-70b", "h100", "fsdp=32,tensor=2", batch=32, recompute="none")
    assert barely.fits
    assert any("may be more than fits" in note for note in barely.notes)
    assert not any("may be more" in note for note in notes)


def test_steps_with_experts_have_a_wider_range() -> None:
    dense = boundby.plan("llama-3.1-8b", "h100", "fsdp=8", batch=8).step_ns
    experts = boundby.plan("mixtral-8x7b", "h100", "fsdp=64", batch=64).step_ns
    assert experts.high / experts.low > 1.2 * dense.high / dense.low
