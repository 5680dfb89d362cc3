"""The walk in numpy takes as long as the plain loop."""

import dataclasses

import numpy as np
import pytest

from boundby.model.assumptions.device import LAUNCH_QUEUE
from boundby.step.simulator import LaunchSequence
from boundby.step.simulator.segments import Segments
from boundby.step.simulator.simulate import _as_lists, _simulate_once

QUEUE = LAUNCH_QUEUE.value


def random_sequence(seed: int) -> LaunchSequence:
    """Some thousand launches: several kernels an action, none at all, removed ones, waits."""
    chance = np.random.default_rng(seed)
    actions = 2500
    counts = chance.choice([0, 1, 1, 1, 3], actions)
    work = int(counts.sum())
    waits = chance.random(actions) < 0.002
    waits[0] = seed % 2 == 0
    first = np.concatenate([[0], np.cumsum(counts)])
    until = np.full(actions, -1)
    some = np.flatnonzero(waits & (first[:-1] > 0))[::2]
    until[some] = first[some] - 1
    device = chance.exponential(chance.choice([2.0, 20.0, 60.0]), work) * 1000
    device[chance.random(work) < 0.1] = 0.0
    return LaunchSequence(
        host_ns=chance.exponential(10_000, actions),
        wait=waits.astype(np.int8),
        phase=np.ones(actions, np.int8),
        first=first,
        after_ns=float(chance.exponential(50_000)),
        device_ns=device,
        stream=(chance.random(work) < 0.1).astype(np.int64) * (seed % 3 > 0),
        depends=np.full(work, -1),
        order=np.arange(work),
        latency_ns=float(chance.choice([0.0, 4000.0])),
        gap_ns=float(chance.choice([-800.0, 0.0, 1500.0])),
        until=until,
    )


@pytest.mark.parametrize("seed", range(12))
def test_segments_equal_the_plain_loop(seed: int) -> None:
    sequence = random_sequence(seed)
    segments, lists = Segments(sequence, QUEUE), _as_lists(sequence)
    plain, fast = [0.0, 0.0], [0.0, 0.0]
    clock = other = 0.0
    for _ in range(3):
        clock, other = _simulate_once(lists, plain, clock), segments.iterate(fast, other)
        assert other == pytest.approx(clock, rel=1e-9)
        assert fast == pytest.approx(plain, rel=1e-9)


def test_short_or_waiting_segments_use_the_plain_loop() -> None:
    sequence = random_sequence(0)
    assert Segments.of(dataclasses.replace(sequence, wait=np.zeros(2500, np.int8)), QUEUE)
    depends = np.full(len(sequence.device_ns), -1)
    depends[5] = 0
    assert Segments.of(dataclasses.replace(sequence, depends=depends), QUEUE) is None
    assert Segments.of(dataclasses.replace(sequence, wait=np.ones(2500, np.int8)), QUEUE) is None
