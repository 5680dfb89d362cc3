"""A cache that is copied whole for each token: seen where it is, and only there."""

import msgspec
import pytest

from boundby.faults import growing_cache
from boundby.model import Phase, Tensor, Timeline
from tests.faults.step_models import finding, in_phase, step_model_of, sure
from tests.step.test_dataflow import chain

CACHE, TOKEN = (8, 32, 4096, 128), (8, 32, 1, 128)


def stored(shape: tuple[int, ...], storage: int) -> Tensor:
    return Tensor(shape=shape, dtype="bfloat16", storage=storage)


def decoding(
    cache: int = 1, news: tuple[int, ...] = TOKEN, phase: Phase = Phase.FORWARD
) -> Timeline:
    """A projection makes the token's keys, which are appended to the storage `cache`."""
    keys = stored(CACHE, cache)
    timeline = chain(
        ("cos", (keys,), 5),
        ("cos", (stored(news, 3),), 4),
        ("cat", ((keys, stored(news, 4)), 2), 6),
    )
    return in_phase(timeline, phase)


def test_only_new_tokens_remain_to_be_written() -> None:
    step_model = step_model_of(decoding())
    found = sure(step_model, "growing-cache")
    # Of three kernels of 110 us the last, but for some microseconds to write 64 KiB.
    assert found.saving_ns.expected == pytest.approx(104e3, rel=0.05)
    assert found.saving_ns.low == pytest.approx(55e3, rel=0.1)
    assert "in place of torch.cat" in found.change


@pytest.mark.parametrize(
    ("cache", "news", "phase"),
    [
        (5, TOKEN, Phase.FORWARD),  # made in this very step: no cache
        (1, CACHE, Phase.FORWARD),  # as much again: two tensors that are put together
        (1, TOKEN, Phase.BACKWARD),  # training keeps no cache
    ],
)
def test_other_concatenations_are_not_a_growing_cache(
    cache: int, news: tuple[int, ...], phase: Phase
) -> None:
    step_model = step_model_of(decoding(cache, news, phase))
    assert finding(step_model, "growing-cache") is None


def test_without_recorded_memory_nothing_is_reported() -> None:
    timeline = msgspec.structs.replace(decoding(), allocations=None)
    assert growing_cache.detect(step_model_of(timeline)) is None


def test_cache_in_a_replayed_graph_is_not_followed() -> None:
    """It is in no operator: the origin of its inputs is unknown."""
    step_model = step_model_of(decoding())
    assert step_model.flow is not None
    for given in step_model.flow.arguments:
        given.clear()
    assert growing_cache.detect(step_model) is None
