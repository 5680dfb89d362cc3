"""Kernels timed with twice the batch: how they are said to grow."""

import msgspec
import pytest

from boundby.faults.batch_too_small import batches
from boundby.model import MemoryLevel, Tensor
from boundby.step.batch_growth import Alone, grown_ns, in_step_ns
from boundby.step.model import StepModel
from tests.faults.step_models import step_model_of
from tests.machines import round_machine
from tests.step.test_dataflow import chain, chain_of


def always(ns: float) -> Alone:
    """A call that finds no more in the caches when they are its own."""
    return Alone(ns, ns)


@pytest.mark.parametrize(
    ("twice_ns", "four_times_ns"),
    [
        (100.0, 100.0),  # it was waiting for something else than samples
        (150.0, 250.0),  # 50 for being there, 50 for each batch
        (200.0, 400.0),
        (240.0, 480.0),  # it outgrew a cache, once
        (60.0, 120.0),  # another kernel took over, which grows as kernels do
    ],
)
def test_growth_goes_on_as_it_began(twice_ns: float, four_times_ns: float) -> None:
    assert grown_ns(100.0, twice_ns, 2) == pytest.approx(twice_ns)
    assert grown_ns(100.0, twice_ns, 4) == pytest.approx(four_times_ns)


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (20.0, 40.0),  # all of its memory is in the caches there, as when it is timed over and over
        (30.0, 56.0),  # none of it is
        (25.0, 48.0),  # half of it
        (60.0, 112.0),  # slower than ever alone, for a reason that stays
        (15.0, 30.0),
    ],
)
def test_calls_grow_as_those_do_that_find_as_much_in_the_caches(ns: float, expected: float) -> None:
    found = in_step_ns(ns, Alone(20.0, 30.0), Alone(40.0, 56.0), most=2.0)
    assert found == pytest.approx(expected)


def test_what_outgrows_a_cache_takes_no_longer_than_without_one() -> None:
    """Timed alone it takes four times as long; where it already missed, no more than that."""
    missed = in_step_ns(40.0, Alone(10.0, 40.0), Alone(40.0, 80.0), most=2.0)
    assert missed == pytest.approx(80.0)
    assert in_step_ns(39.0, *map(always, (10.0, 40.0)), most=2.0) == pytest.approx(78.0)


def test_a_timed_call_says_how_a_step_grows_with_the_batch() -> None:
    """Four times the batch takes three times what twice it adds."""
    step_model = step_model_of(chain_of(4))
    batches(step_model)
    now, then = step_model.timings.asked
    step_model.timings.known.update({now: 100.0, then: 130.0})
    double, four = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(1.3 * step_model.wall_ns, rel=0.02)
    assert four.wall_ns.expected == pytest.approx(1.9 * step_model.wall_ns, rel=0.02)
    assert double.wall_ns.low < double.wall_ns.expected < double.wall_ns.high


def test_on_a_cpu_each_time_the_batch_is_doubled_there_is_more_doubt() -> None:
    """What a device showed at twice the batch goes on; a CPU has more caches to outgrow."""
    widths = []
    for on_device in (True, False):
        steps = [("cos", (Tensor(shape=(1 << 26,), dtype="float32", storage=1),), 2)]
        step_model = step_model_of(chain(*steps, on_device=on_device))
        batches(step_model)
        step_model.timings.known |= dict(
            zip(step_model.timings.asked, (100.0, 190.0, 370.0), strict=False)
        )
        rows = batches(step_model)
        widths += [row.wall_ns.high / row.wall_ns.expected for row in rows]
    assert widths == pytest.approx([1.03, 1.03, 1.03**4, 1.03**8], rel=0.02)


def on_a_cpu(elements: int = 1 << 20) -> StepModel:
    steps = [("cos", (Tensor(shape=(elements,), dtype="float32", storage=1),), 2)]
    step_model = step_model_of(chain(*steps, on_device=False))
    batches(step_model)
    return step_model


def test_a_cpu_is_asked_for_four_times_the_batch() -> None:
    """Memory that its system gives anew each time takes longer from some size on."""
    step_model = on_a_cpu()
    took = step_model.op_records[0].ns
    now, then, at_last = step_model.timings.asked
    step_model.timings.known |= {now: took, then: 2 * took}
    assert batches(step_model)[1].wall_ns.expected == pytest.approx(step_model.wall_ns + 3 * took)
    step_model.timings.known[at_last] = 9 * took
    assert batches(step_model)[1].wall_ns.expected == pytest.approx(step_model.wall_ns + 8 * took)


def test_four_times_the_batch_is_not_tried_where_it_takes_much_memory() -> None:
    """Half a gigabyte is touched with one; with four, two."""
    assert len(on_a_cpu(1 << 26).timings.asked) == 2


def test_what_every_call_costs_is_not_taken_to_grow() -> None:
    """By itself it takes a third longer than in the step, for being called: both times alike."""
    step_model = on_a_cpu()
    took = step_model.op_records[0].ns
    now, then, at_last = step_model.timings.asked
    extra = took / 3
    step_model.timings.known |= {
        now: took + extra,
        then: 2 * took + extra,
        at_last: 4 * took + extra,
    }
    double, four = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(step_model.wall_ns + took)
    assert four.wall_ns.expected == pytest.approx(step_model.wall_ns + 3 * took)


def test_a_call_that_is_quicker_with_more_samples_still_takes_its_time() -> None:
    """By chance, as calls are that take next to nothing beside what each of them costs."""
    step_model = on_a_cpu()
    took = step_model.op_records[0].ns
    now, then, at_last = step_model.timings.asked
    step_model.timings.known |= {now: 50 * took, then: 48 * took, at_last: 48 * took}
    for row in batches(step_model):
        assert row.wall_ns.expected >= 0.9 * step_model.wall_ns
        assert 0 < row.wall_ns.low < row.wall_ns.expected < row.wall_ns.high


def test_a_call_that_only_alone_finds_its_data_in_a_cache_takes_no_more_than_twice() -> None:
    """Alone, twice the batch took four times as long, and still less than the step's own twice."""
    step_model = step_model_of(chain_of(4))
    batches(step_model)
    now, then = step_model.timings.asked
    took = step_model.op_records[0].ns
    step_model.timings.known.update({now: took / 3, then: 4 / 3 * took})
    double, _ = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(2 * step_model.wall_ns, rel=0.02)
    # One that takes longer than twice the step's own has outgrown a cache in the step too.
    step_model.timings.known.update({now: took, then: 3 * took})
    double, _ = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(3 * step_model.wall_ns, rel=0.02)


def test_what_fits_a_cache_is_timed_from_it_and_from_memory() -> None:
    """The step's own calls take what they do from memory, and so do those with twice the batch."""
    machine = round_machine()
    cache = MemoryLevel(roof="memory.cache", capacity=1 << 40)
    levels = [cache, *machine.levels[1:]]
    step_model = step_model_of(chain_of(4), msgspec.structs.replace(machine, levels=levels))
    batches(step_model)
    hot, hot_twice, cold, cold_twice = step_model.timings.asked
    assert [one.cold for one in step_model.timings.asked] == [False, False, True, True]
    took = step_model.op_records[0].ns
    step_model.timings.known.update({hot: took / 4, hot_twice: took})
    double, _ = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(2 * step_model.wall_ns, rel=0.02)
    step_model.timings.known.update({cold: took, cold_twice: 1.5 * took})
    double, _ = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(1.5 * step_model.wall_ns, rel=0.02)
    # One of the two says nothing.
    del step_model.timings.known[cold]
    double, _ = batches(step_model)
    assert double.wall_ns.expected == pytest.approx(2 * step_model.wall_ns, rel=0.02)


def test_a_recurrent_layer_goes_back_as_it_went_forward() -> None:
    """Its backward reads what the forward left, in a form of its own: it is never run alone."""

    def at(storage: int, *shape: int) -> Tensor:
        return Tensor(shape=shape, dtype="float32", storage=storage)

    weights = (at(101, 512, 128), at(102, 512, 128), at(103, 512), at(104, 512))
    x, states = at(1, 40, 16, 128), (at(5, 16, 128), at(6, 16, 128))
    forward = (False, (), 2, 128, 1, True, False, True, True)
    out, gradient = at(2, 40, 16, 128), at(7, 40, 16, 128)
    told = (None, None, False, 2, 128, 1, True, True, False, (), True)
    backward = (out, *states, gradient, *told, at(8, 4000))
    timeline = chain(
        ("mkldnn_rnn_layer", (x, *weights, *states, *forward), 2),
        ("mkldnn_rnn_layer_backward", (x, *weights, *states, *backward), 3),
        on_device=False,
    )
    step_model = step_model_of(timeline)
    batches(step_model)
    took = step_model.op_records[0].ns
    times = {16: took, 32: 1.3 * took, 64: 1.9 * took}
    step_model.timings.known |= {
        one: times[one.args[0].shape[1]]  # type: ignore[union-attr]
        for one in step_model.timings.asked
        if one.name == "aten::mkldnn_rnn_layer"
    }
    double, four = batches(step_model)
    both = 2 * took
    assert double.wall_ns.expected == pytest.approx(step_model.wall_ns + 0.3 * both)
    assert four.wall_ns.expected == pytest.approx(step_model.wall_ns + 0.9 * both)
