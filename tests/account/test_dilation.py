"""What the profiler cost: by event and by Python's own code, told apart by clean phases."""

import msgspec
import numpy as np
import pytest

from boundby.account.dilation import dilation_of
from boundby.account.whereabouts import whereabouts
from boundby.model import HostKind, Phase, Timeline
from tests.timelines import US, Scene


def profiled() -> Timeline:
    """A loop of 100 us without a call, then a backward of 9 operators: 10 us each, profiled."""
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "train.py(1): loop")
    for at in range(100, 190, 10):
        scene.on_host(at, at + 10, name="aten::mul")
    scene.on_host(190, 200, HostKind.PYTHON, "<built-in method sleep>")
    timeline = scene.timeline()
    phase = [Phase.OTHER, *[Phase.BACKWARD] * 9, Phase.OTHER]
    host = msgspec.structs.replace(timeline.host, phase=np.array(phase, np.int8))
    return msgspec.structs.replace(timeline, host=host)


def costs(wall_us: float, phases: dict[str, float] | None) -> tuple[float, float]:
    timeline = profiled()
    clean = {name: ns * US for name, ns in (phases or {}).items()}
    found = dilation_of(timeline, whereabouts(timeline), wall_ns=wall_us * US, phases=clean)
    return found.per_event_ns / US, found.of_python


def test_what_phases_without_calls_lost_is_pythons() -> None:
    # Clean the loop takes 50 us, the sleep 10, and each operator 8: 11 events cost 2 us each.
    event, python = costs(132, {"other": 60, "backward": 72})
    assert event == pytest.approx(2, rel=0.15)
    assert python == pytest.approx(0.46, rel=0.15)


def test_what_phases_of_events_lost_is_the_events() -> None:
    # The loop is as fast as ever: all the 22 us are the events'.
    event, python = costs(178, {"other": 106, "backward": 72})
    assert event == pytest.approx(2, rel=0.05)
    assert python == pytest.approx(0, abs=0.01)


def test_together_they_explain_the_whole_difference() -> None:
    timeline = profiled()
    for wall in (110.0, 150.0, 190.0):
        event, python = costs(wall, {"other": 60, "backward": 72})
        assert event * len(timeline.host) + python * 100 == pytest.approx(200 - wall)


def test_without_phases_and_without_a_difference() -> None:
    assert costs(178, None) == pytest.approx((2, 0))
    assert costs(200, {"other": 100, "backward": 90}) == (0.0, 0.0)
    assert costs(250, {"other": 100, "backward": 90}) == (0.0, 0.0)
