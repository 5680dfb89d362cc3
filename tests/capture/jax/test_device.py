"""The times of steps that a device had queued."""

from __future__ import annotations

import pytest

from boundby.capture.jax.device import JaxDevice

MS = 1_000_000


class _Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class _Array:
    """An array that is ready at a time of the clock; a waiting host may wake later."""

    def __init__(self, clock: _Clock, ready_ns: int, late_ns: int = 0) -> None:
        self._clock, self._ready_ns, self._late_ns = clock, ready_ns, late_ns

    def is_deleted(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return self._clock.ns >= self._ready_ns

    def block_until_ready(self) -> None:
        if self._clock.ns < self._ready_ns:
            self._clock.ns = self._ready_ns + self._late_ns


def _times(ready_ms: list[float], late_ms: list[float]) -> list[float]:
    clock = _Clock()
    device = JaxDevice(clock)
    marks = [device.mark()]
    for ready, late in zip(ready_ms, late_ms, strict=True):
        clock.ns += MS // 100
        device.completed(_Array(clock, int(ready * MS), int(late * MS)))
        marks.append(device.mark())
    device.sync()
    return [ns / MS for ns in device.between(marks)]


def test_queued_steps_last_from_completion_to_completion() -> None:
    assert _times([3, 6, 9, 12], [0, 0, 0, 0]) == pytest.approx([3, 3, 3, 3])


def test_steps_completed_while_the_host_waited_share_the_time() -> None:
    assert _times([3, 6, 9, 12], [0, 3.5, 0, 0]) == pytest.approx([3, 3, 3, 3])


def test_host_pause_belongs_to_its_step() -> None:
    clock = _Clock()
    device = JaxDevice(clock)
    marks = [device.mark()]
    for host, device_ms in ((1, 2), (1, 2), (50, 2), (1, 2), (1, 2)):
        clock.ns += host * MS
        device.completed(_Array(clock, clock.ns + device_ms * MS))
        marks.append(device.mark())
    device.sync()
    times = [ns / MS for ns in device.between(marks)]
    assert max(times) > 45
    assert sum(times) == pytest.approx(1 + 1 + 50 + 1 + 1 + 2)


def test_steps_that_a_blocked_host_waited_for_take_the_time_of_the_device() -> None:
    """The host may be ten steps ahead; then its next call waits until all of them are done."""
    clock = _Clock()
    device = JaxDevice(clock)
    marks = [device.mark()]
    for step in range(1, 15):
        clock.ns = max(clock.ns + MS, 100 * MS if step > 10 else 0)
        device.completed(_Array(clock, 10 * step * MS))
        marks.append(device.mark())
    device.sync()
    times = [ns / MS for ns in device.between(marks)]
    assert sorted(times)[7] == pytest.approx(10, rel=0.1)
    assert sum(times) == pytest.approx(140)


def test_step_times_are_host_times_where_the_device_keeps_up() -> None:
    assert _times([0, 0, 0], [0, 0, 0]) == pytest.approx([0.01, 0.01, 0.01])


def test_waiting_for_queued_steps_is_reported() -> None:
    clock = _Clock()
    device = JaxDevice(clock)
    device.completed(_Array(clock, 5 * MS))
    device.mark()
    device.sync()
    assert device.waited_ns == 5 * MS
