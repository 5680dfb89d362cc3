"""`nnx.jit` and `eqx.filter_jit` take the state apart in Python at every call."""

from __future__ import annotations

from boundby.model import HostKind
from boundby.model.jax_facts import JaxFacts, JaxFunction
from boundby.step.model import StepModel
from tests.faults.step_models import at_line, finding, sure
from tests.faults.test_jax_faults import _model as model_of
from tests.timelines import US, Scene


def _wrapped(*, library: str | None, call_us: float = 100.0) -> StepModel:
    """A line of 900 us that calls the step's function, which takes a part of it."""
    scene = Scene(end=1000)
    scene.on_host(0, 900, HostKind.PYTHON, "train.py(9): main")
    call = scene.on_host(500, 500 + call_us, HostKind.OP, "PjitFunction(step)")
    scene.on_host(510, 590, HostKind.OP, "PjitFunction(step)")  # listed twice
    scene.on_device(950, 1000, launch=call)
    function = JaxFunction(name="step", source="train.py:3", library=library)
    facts = JaxFacts(function=function, functions=[function])
    return model_of(at_line(scene.timeline(), "train.py:9"), facts)


def test_time_around_the_compiled_function_is_the_wrappers() -> None:
    found = sure(_wrapped(library="flax"), "jax-wrapped-step")
    assert found.where == ["train.py:9"]
    assert 500 * US < found.saving_ns.expected <= 800 * US
    assert "nnx.cached_partial(step" in found.change
    assert finding(_wrapped(library="flax"), "python-in-step") is None


def test_advice_uses_terms_of_the_library() -> None:
    assert "eqx.partition" in sure(_wrapped(library="equinox"), "jax-wrapped-step").change
    assert "jax.jit(step)" in sure(_wrapped(library="other"), "jax-wrapped-step").change


def test_a_function_of_the_scripts_own_is_not_wrapped() -> None:
    assert finding(_wrapped(library=None), "jax-wrapped-step") is None
