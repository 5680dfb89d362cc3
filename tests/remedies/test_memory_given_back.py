"""Pages that a CPU step gives back and asks for again."""

import dataclasses

import pytest

from boundby.capture.live.circumstances import Circumstances
from boundby.model import Tensor
from boundby.picture import Change, Picture
from boundby.remedies import memory_given_back
from tests.remedies.pictures import picture_of
from tests.test_dataflow import chain

STEPS = 10
PAGES = 40
# Ten steps of 40 pages, 1 us each when tried alone, 2 us by what the system did.
SEEN = Circumstances(
    steps_ns=(1e6,) * STEPS,
    wall_ns=1e6 * STEPS,
    fresh_pages=PAGES * STEPS,
    system_ns=2000.0 * PAGES * STEPS,
    fresh_page_ns=1000.0,
)


def on_a_cpu(seen: Circumstances, *, on_device: bool = False) -> Picture:
    given = [Tensor(shape=(1 << 20,), dtype="float32", storage=at) for at in (1, 2)]
    steps = [("cos", (tensor,), at) for at, tensor in enumerate(given, 2)]
    return picture_of(chain(*steps, each_us=500.0, on_device=on_device), circumstances=seen)


def saved(seen: Circumstances) -> float:
    picture = on_a_cpu(seen)
    imagined = memory_given_back.imagine(picture)
    assert imagined is not None
    return picture.base_ns - picture.replay(imagined.expected)


def test_what_the_system_did_for_the_pages_is_saved() -> None:
    assert saved(SEEN) == pytest.approx(2000.0 * PAGES)


@pytest.mark.parametrize(("did", "each"), [(200.0, 1000.0), (50_000.0, 4000.0)])
def test_a_page_costs_what_it_costs_alone_and_not_much_more(did: float, each: float) -> None:
    """The system does other things too, as for threads that look for work."""
    seen = dataclasses.replace(SEEN, system_ns=did * PAGES * STEPS)
    assert saved(seen) == pytest.approx(each * PAGES)


def test_pages_that_were_kept_were_needed() -> None:
    half = dataclasses.replace(SEEN, kept_pages=PAGES * STEPS // 2)
    assert saved(half) == pytest.approx(1000.0 * PAGES)
    grown = dataclasses.replace(SEEN, kept_pages=PAGES * STEPS)
    assert memory_given_back.imagine(on_a_cpu(grown)) is None


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert memory_given_back.imagine(on_a_cpu(Circumstances())) is None
    unpriced = dataclasses.replace(SEEN, fresh_page_ns=0.0)
    assert memory_given_back.imagine(on_a_cpu(unpriced)) is None
    assert memory_given_back.imagine(on_a_cpu(SEEN, on_device=True)) is None


def test_work_that_is_not_there_any_more_needs_no_pages() -> None:
    """One of two that made as much: half of the gain is left beside that."""
    picture = on_a_cpu(SEEN)
    assert picture.flow is not None
    without = picture.after(Change(work_ns={picture.flow.order[0]: 0.0}))
    imagined = memory_given_back.imagine(without)
    assert imagined is not None
    saved = without.replay(Change()) - without.replay(imagined.expected)
    assert saved == pytest.approx(1000.0 * PAGES)
