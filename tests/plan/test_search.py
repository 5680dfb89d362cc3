import pytest

import boundby
from boundby.model.errors import BoundbyError
from boundby.plan import chips, models
from boundby.plan.requests import parse_batch, parse_range
from boundby.plan.search import micro_batches, search, sweep
from boundby.plan.training import Training

JOB = Training(sequence=4096, batch=1024)


def test_search_ranks_fitting_layouts_and_explains_the_others() -> None:
    found = search(models.MODELS["llama-3.1-8b"], JOB, chips.find("h100"), 64)
    times = [one.step_ns.expected for one in found.choices]
    assert times == sorted(times)
    assert found.choices[0].why == "fastest"
    assert all("ms" in one.why for one in found.choices[1:])
    assert all(one.memory_bytes <= 80e9 for one in found.choices)


def test_a_sweep_gets_faster_with_more_chips() -> None:
    found = sweep(models.MODELS["llama-3.1-8b"], JOB, chips.find("h100"), [8, 32, 128])
    assert [one.chips for one in found.choices] == [8, 32, 128]
    times = [one.step_ns.expected for one in found.choices]
    assert times == sorted(times, reverse=True)


def test_a_sweep_names_the_numbers_of_chips_that_do_not_fit() -> None:
    found = sweep(models.find("llama-3.1-70b"), JOB, chips.find("h100"), [8, 64])
    assert [choice.chips for choice in found.choices] == [64]
    assert any(note.startswith("8 chips are left out: ") for note in found.notes)


def test_model_too_large_reports_the_chips_needed() -> None:
    with pytest.raises(BoundbyError, match="chips would"):
        search(models.MODELS["llama-3.1-405b"], JOB, chips.find("h100"), 8)


def test_batches_and_ranges_are_read() -> None:
    assert parse_batch("4M-tokens", 4096) == 1024
    assert parse_batch("512", 4096) == 512
    assert parse_batch("1e6-tokens", 4096) == 244
    assert parse_batch("1e6-tokens", 4096, replicas=16) == 240  # each has as many
    assert parse_batch("4M-tokens", 4096, replicas=3) == 1024  # as stated
    assert parse_range("chips=8..64") == [8, 16, 32, 64]
    for text in ("many", "8..", ""):
        with pytest.raises(BoundbyError):
            parse_range(text)


def test_short_sequences_are_taken_many_at_once() -> None:
    assert micro_batches(64, 4096) == [1, 2, 4, 8, 16]
    assert micro_batches(12, 197) == [1, 2, 4]
    assert micro_batches(512, 197)[-1] == 256
    assert micro_batches(64, 131072)[-1] == 8


def test_a_mesh_is_planned_with_its_fastest_micro_batch() -> None:
    """ZeRO-3 gathers the weights once for each micro-batch: fewer of them are faster."""
    plan = boundby.plan("llama-3.1-8b", "h100", "fsdp=64", batch=1024)
    stated = boundby.plan("llama-3.1-8b", "h100", "fsdp=64", batch=1024, micro_batch=1)
    assert plan.mesh["micro_batches"] < stated.mesh["micro_batches"] == 16
    assert plan.step_ns.expected < stated.step_ns.expected
    assert plan.fits


def test_one_replica_may_have_a_pipeline() -> None:
    """One sequence on 64 chips: more than the tensor ways of a node."""
    found = search(
        models.MODELS["llama-3.1-8b"], Training(sequence=4096, batch=1), chips.find("h100"), 64
    )
    assert found.choices[0].mesh["pipeline"] > 1


def test_batch_without_a_layout_names_those_that_have_one() -> None:
    with pytest.raises(BoundbyError, match="97 would, or a number of chips"):
        search(
            models.MODELS["llama-3.1-8b"], Training(sequence=4096, batch=10), chips.find("h100"), 97
        )
