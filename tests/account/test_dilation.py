"""What the profiler cost: by event and by Python's own code."""

import msgspec
import pytest

from boundby.account.dilation import Dilation, dilation_of
from boundby.account.whereabouts import whereabouts
from boundby.model import HostKind, Timeline, Toll
from tests.timelines import US, Scene

OPERATOR, FUNCTION, IN_C = 1, 0, 10


def profiled(toll: Toll | None) -> Timeline:
    """A loop of 100 us without a call, 9 operators of 10 us each, a sleep of 10 us in C."""
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "train.py(1): loop")
    for at in range(100, 190, 10):
        scene.on_host(at, at + 10, name="aten::mul")
    scene.on_host(190, 200, HostKind.PYTHON, "<built-in method sleep>")
    return msgspec.structs.replace(scene.timeline(), toll=toll)


def dilation(wall_us: float, toll: Toll | None) -> Dilation:
    timeline = profiled(toll)
    return dilation_of(timeline, whereabouts(timeline), wall_ns=wall_us * US)


def test_operators_cost_what_python_does_not_explain() -> None:
    toll = Toll(function_ns=800, builtin_ns=400, of_python=0.5)
    # Of the loop's 100 us 1.2 are taken to be the calls', and half of the rest.
    found = dilation(200 - 50.0 - 18, toll)
    assert found.event_ns[FUNCTION] == 800
    assert found.event_ns[IN_C] == 400
    assert found.of_python == pytest.approx(0.494)
    assert found.event_ns[OPERATOR] * 9 == pytest.approx((68 - 1.2 - 49.4) * US)


def test_python_that_explains_too_much_is_brought_down() -> None:
    found = dilation(190, Toll(function_ns=800, builtin_ns=400, of_python=0.5))
    assert found.event_ns[OPERATOR] == 0
    assert found.of_python == pytest.approx(0.494 * 10 / 50.6)


@pytest.mark.parametrize("wall", [110.0, 150.0, 190.0, 200.0, 250.0])
@pytest.mark.parametrize(
    "toll", [None, Toll(function_ns=800, builtin_ns=400, of_python=0.3), Toll()], ids=str
)
def test_together_they_explain_the_whole_difference(wall: float, toll: Toll | None) -> None:
    found = dilation(wall, toll)
    explained = found.event_ns.sum() / US + found.of_python * 100
    assert explained == pytest.approx(max(0.0, 200 - wall))
    assert 0 <= found.of_python < 1
    assert (found.event_ns >= 0).all()


def test_without_a_toll_an_operator_costs_most() -> None:
    found = dilation(180.8, None)  # 9 operators, a function at 0.4 of one, one in C at 0.2
    assert found.event_ns[[OPERATOR, FUNCTION, IN_C]].tolist() == pytest.approx([2000, 800, 400])
