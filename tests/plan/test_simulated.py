"""A planned step through the simulator of measured steps, against the closed form of a search."""

import msgspec
import pytest

from boundby.plan import chips, models
from boundby.plan.mesh import Mesh
from boundby.plan.simulated import simulated_ns, simulated_step
from boundby.plan.training import Training, plan_step

MODELS = models.MODELS


@pytest.mark.parametrize(
    ("model", "chip", "mesh", "batch"),
    [
        ("llama-3.1-8b", "h100", Mesh(fsdp=64), 256),
        ("llama-3.1-8b", "h100", Mesh(fsdp=64, zero=1), 1024),
        ("llama-3.1-8b", "h100", Mesh(data=64), 64),
        ("llama-3.1-8b", "v5p", Mesh(data=8, fsdp=8), 64),
        ("llama-3.1-70b", "rtx4090", Mesh(data=8, fsdp=8), 64),
        ("llama-3.1-8b", "rtx4090", Mesh(fsdp=8), 64),
        ("llama-3.1-70b", "a100", Mesh(fsdp=1024), 1024),
        ("llama-3.1-70b", "h100", Mesh(fsdp=32, tensor=8), 256),
        ("llama-3.1-70b", "h100", Mesh(fsdp=8, tensor=8, pipeline=4, zero=1), 256),
        ("llama-3.1-70b", "h100", Mesh(fsdp=8, context=8), 64),
        ("deepseek-v3", "h100", Mesh(fsdp=64, expert=64, pipeline=4, zero=1), 1024),
    ],
)
def test_closed_form_equals_the_simulated_step(
    model: str, chip: str, mesh: Mesh, batch: int
) -> None:
    """Where the host keeps up: to a layer's gathering at either end."""
    config = MODELS[model]
    job = Training(sequence=4096, batch=batch, recompute="full")
    step = plan_step(config, mesh, job, chips.find(chip))
    assert step.host_ns == 0
    assert simulated_ns(step, config, mesh) == pytest.approx(step.expected_ns, rel=0.02)


def test_host_ahead_in_the_head_does_not_hide_layer_launches() -> None:
    """The device waits in the layers although all of it takes longer than the host."""
    config, job = MODELS["gpt2"], Training(sequence=1024, batch=8, micro_batch=8)
    step = plan_step(config, Mesh(), job, chips.find("h200"))
    assert simulated_ns(step, config, Mesh()) > step.expected_ns


def test_simulated_parts_add_up() -> None:
    config, mesh = MODELS["llama-3.1-70b"], Mesh(fsdp=32, tensor=8)
    job, h100 = Training(sequence=4096, batch=256), chips.find("h100")
    step = simulated_step(config, mesh, job, h100)
    closed = plan_step(config, mesh, job, h100)
    assert step.expected_ns == pytest.approx(simulated_ns(closed, config, mesh), rel=1e-6)
    assert all(0 <= one.exposed_ns <= one.total_ns for one in step.traffic)


def test_each_micro_batch_adds_its_time() -> None:
    """Beyond the fourth they are not replayed."""
    config, mesh, h100 = MODELS["llama-3.1-8b"], Mesh(fsdp=8), chips.find("h100")
    job = Training(sequence=4096, batch=8 * 4)

    def seconds(batch: int) -> float:
        step = plan_step(config, mesh, msgspec.structs.replace(job, batch=batch), h100)
        return simulated_ns(step, config, mesh)

    assert seconds(8 * 64) - seconds(8 * 63) == pytest.approx(seconds(8 * 8) - seconds(8 * 7))


def test_host_is_as_far_behind_without_overlap() -> None:
    config, mesh = MODELS["gpt2"], Mesh(fsdp=8)
    job, h100 = Training(sequence=512, batch=8), chips.find("h100")
    apart = msgspec.structs.replace(job, overlap=False)
    beside = simulated_step(config, mesh, job, h100).expected_ns
    assert simulated_step(config, mesh, apart, h100).expected_ns >= beside
