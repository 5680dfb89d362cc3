"""Paths worked out by hand, in microseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundby.step.simulator import LaunchSequence, PathKind, critical_path, replay, slack
from tests.step.test_replay import loop
from tests.timelines import US

HOST, KERNEL, LATENCY, GAP = PathKind.HOST, PathKind.KERNEL, PathKind.LATENCY, PathKind.GAP


def path(launches: LaunchSequence) -> list[tuple[PathKind, int, float]]:
    return [(one.kind, one.number, one.ns / US) for one in critical_path(launches)]


def test_busy_device_is_the_critical_path() -> None:
    assert path(loop([1, 1, 1], [10, 20, 30])) == [
        (KERNEL, 0, 10),
        (KERNEL, 1, 20),
        (KERNEL, 2, 30),
    ]


def test_slow_host_is_the_critical_path_up_to_the_last_kernel() -> None:
    # The step ends with the last kernel, 2 after its launch: 8 of the host's first 10 are left.
    assert path(loop([10, 10, 10], [2, 2, 2])) == [
        (HOST, 0, 8),
        (HOST, 1, 10),
        (HOST, 2, 10),
        (KERNEL, 2, 2),
    ]


def test_sync_puts_its_kernel_and_the_following_host_time_on_the_path() -> None:
    # Launch at 5, kernel until 25, the host waits; 7 until the next launch, its kernel ends at 35.
    launches = loop([5, 7], [20, 3], waits=(0, 1))
    assert path(launches) == [(HOST, 0, 5), (KERNEL, 0, 20), (HOST, 1, 7), (KERNEL, 1, 3)]


def test_work_that_waits_for_another_stream_follows_it() -> None:
    launches = loop([1, 1], [30, 4], streams=[0, 1], waits=(1,))
    launches = replace(launches, depends=np.array([-1, 0]))
    assert path(launches) == [(HOST, 0, 1), (KERNEL, 0, 30), (KERNEL, 1, 4)]


def test_latency_and_gaps_are_segments() -> None:
    launches = replace(loop([5, 1], [20, 3], waits=(1,)), latency_ns=2.0 * US, gap_ns=1.0 * US)
    assert path(launches) == [
        (HOST, 0, 5),
        (LATENCY, 0, 2),
        (KERNEL, 0, 20),
        (GAP, 1, 1),
        (KERNEL, 1, 3),
    ]


def test_a_stream_that_falls_behind_is_the_path_before_it_ends_last() -> None:
    # The host needs 7 a step and the second stream 7, the first 8.
    launches = replace(loop([1, 3], [8, 7], streams=[0, 1]), after_ns=3.0 * US)
    assert path(launches) == [(KERNEL, 0, 8)]


@given(data=st.data(), count=st.integers(1, 8))
def test_the_path_is_as_long_as_the_step(data: st.DataObject, count: int) -> None:
    times = st.lists(st.integers(1, 50).map(float), min_size=count, max_size=count)
    streams = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    waits = data.draw(st.sets(st.integers(0, count - 1)))
    launches = loop(data.draw(times), data.draw(times), streams=streams, waits=tuple(waits))
    depends = [data.draw(st.integers(-1, one - 1)) for one in range(count)]
    launches = replace(launches, depends=np.array(depends), after_ns=3.0 * US)
    total = sum(one.ns for one in critical_path(launches))
    assert total == pytest.approx(replay(launches))


def test_slack_is_the_time_until_the_result_is_needed() -> None:
    assert slack(loop([1, 1, 1], [10, 20, 30])).tolist() == [0, 0, 0]
    # The first may move the second, which the third leaves 7; the last ends the step.
    assert (slack(loop([10, 10, 10], [2, 3, 2])) / US).tolist() == [15, 7, 0]
    # 30 on one stream beside 4 on another, and the host waits for both.
    launches = loop([1, 1], [30, 4], streams=[0, 1], waits=(1,))
    assert (slack(launches) / US).tolist() == [0, 25]


@given(data=st.data(), count=st.integers(1, 8))
def test_work_that_takes_longer_by_its_slack_does_not_lengthen_the_step(
    data: st.DataObject, count: int
) -> None:
    times = st.lists(st.integers(1, 50).map(float), min_size=count, max_size=count)
    streams = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    waits = data.draw(st.sets(st.integers(0, count - 1)))
    launches = loop(data.draw(times), data.draw(times), streams=streams, waits=tuple(waits))
    depends = [data.draw(st.integers(-1, one - 1)) for one in range(count)]
    launches = replace(launches, depends=np.array(depends), after_ns=3.0 * US)
    number = data.draw(st.integers(0, count - 1))
    longer = launches.device_ns.copy()
    longer[number] += slack(launches)[number]
    assert replay(replace(launches, device_ns=longer)) == pytest.approx(replay(launches))
