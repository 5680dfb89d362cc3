"""Calls of a script's compiled functions, seen from outside; jax itself stays as it was."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundby.capture.jax.hooks import Function, JaxHooks
from boundby.capture.jax.step_finder import JaxStepFinder
from boundby.model.step_kind import StepKind

jax = pytest.importorskip("jax")
jnp = jax.numpy


class _Calls:
    """Notes the names of functions that are called from the script's own level."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def calls(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None]:
        self.names.append(function.name)
        return lambda result: None


@pytest.fixture
def hooks() -> Iterator[JaxHooks]:
    found = JaxHooks()
    found.install(jax)
    yield found
    found.remove()


@pytest.fixture
def calls(hooks: JaxHooks) -> _Calls:
    listener = _Calls()
    hooks.watcher = listener
    return listener


def test_removing_hooks_restores_jax() -> None:
    names = ("jit", "pmap", "grad", "value_and_grad", "vjp")
    before = [getattr(jax, name) for name in names] + [jax.lax.scan]
    hooks = JaxHooks()
    hooks.install(jax)
    assert jax.jit is not before[0]
    hooks.remove()
    assert [getattr(jax, name) for name in names] + [jax.lax.scan] == before


def test_decorated_partial_and_nested_calls_are_recorded_once(calls: _Calls) -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return x + 1

    @functools.partial(jax.jit, static_argnames=("times",))
    def outer(x: Any, times: int) -> Any:
        return inner(x) * times

    assert float(outer(jnp.float32(1), times=3)) == 6
    assert float(inner(jnp.float32(1))) == 2
    assert calls.names == ["outer", "inner"]


def test_hooked_function_keeps_the_attributes_of_jit(calls: _Calls) -> None:
    f = jax.jit(lambda x: x * 2)
    assert f.lower(jnp.ones(3)).compile()(jnp.ones(3)).sum() == 6
    assert f._cache_size() == 0
    assert list(jax.vmap(f)(jnp.arange(3.0))) == [0.0, 2.0, 4.0]
    assert float(jax.grad(f)(2.0)) == 2.0


def test_methods_can_be_compiled(calls: _Calls) -> None:
    class Model:
        @functools.partial(jax.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * 2

    assert float(Model().apply(jnp.float32(2))) == 4
    assert calls.names == ["apply"]


def test_gradients_inside_a_compiled_function_mark_it_as_training(hooks: JaxHooks) -> None:
    hooks.watcher = _Calls()
    trains = jax.jit(lambda w: w - jax.grad(lambda v: v * v)(w))
    trains(jnp.float32(1))
    jax.jit(lambda w: w + 1)(jnp.float32(1))
    assert [f.traced_gradient for f in hooks.functions if not f.has_gradient] == [True, False]


def test_functions_jitted_again_in_a_loop_count_as_one_function(hooks: JaxHooks) -> None:
    def step(x: Any) -> Any:
        return x + 1

    for _ in range(4):
        jax.jit(step)
    (function,) = hooks.functions
    assert (function.name, function.made) == ("step", 4)


class _Steps:
    """What a step finder reports for calls of compiled functions."""

    def __init__(self, hooks: JaxHooks) -> None:
        self.kinds: list[tuple[str, int | None]] = []
        self.restarts = 0
        self.finder = JaxStepFinder(jax, self._ended, self._restart)
        hooks.watcher = self

    def calls(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None]:
        return self.finder.calls_begin(function, args, kwargs)

    def _ended(self, kind: StepKind, array: Any) -> None:
        self.kinds.append((kind.label, kind.samples))

    def _restart(self) -> None:
        self.restarts += 1
        self.kinds.clear()


def test_training_step_is_one_call_of_the_state_carrying_function(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    make_batch = jax.jit(lambda i: jnp.full((8, 4), i, jnp.float32))
    evaluate = jax.jit(lambda w, x: (x @ w).mean())

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(lambda v: ((x @ v) ** 2).mean())(w)

    w = jnp.ones(4)
    for i in range(8):
        w = step(w, make_batch(i))
        if i % 3 == 2:
            evaluate(w, make_batch(0))
    assert steps.finder.anchor is not None
    assert steps.finder.anchor.name == "step"
    assert steps.kinds == [("train 8x4", 8)] * 6  # from the third call on
    assert steps.finder.donates is False


def test_accumulated_gradients_and_their_update_are_one_step(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    @jax.jit
    def accumulate(sums: Any, w: Any, x: Any) -> Any:
        return sums + jax.grad(lambda v: ((x @ v) ** 2).mean())(w)

    update = jax.jit(lambda w, sums: w - 0.1 * sums)
    w = jnp.ones(4)
    for _ in range(8):
        sums = jnp.zeros(4)
        for _ in range(3):
            sums = accumulate(sums, w, jnp.ones((2, 4)))
        w = update(w, sums)
    assert steps.finder.anchor is not None
    assert steps.finder.anchor.name == "<lambda>"
    assert steps.restarts == 1
    assert len(steps.kinds) == 6


def test_small_functions_are_called_without_recording(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    make_batch = jax.jit(lambda i: jnp.full((8, 4), i, jnp.float32))

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(lambda v: ((x @ v) ** 2).mean())(w)

    w = jnp.ones(4)
    for i in range(6):
        w = step(w, make_batch(i))
    before = steps.finder.calls
    make_batch(9)
    assert steps.finder.calls == before
    step(w, make_batch(9))
    assert steps.finder.calls == before + 1
    assert len(steps.kinds) == 5


def test_numpy_arguments_and_their_constancy_are_recorded(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    @jax.jit
    def step(w: Any, table: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(lambda v: ((x @ v) * table).mean())(w)

    w, table = jnp.ones(4), _beside_alignment(8)
    for i in range(4):
        w = step(w, table, _beside_alignment(32).reshape(8, 4) + np.float32(i))
    found = {one.argument: one.is_same for one in steps.finder.host_arrays}
    assert found == {"table": True, "x": False}
    assert step.__name__ in [one.name for one in hooks.functions if one.is_fed]


def _beside_alignment(count: int) -> Any:
    """Numbers at an address that is no multiple of 64 bytes."""
    memory = np.zeros(count + 32, np.float32)
    at = (-memory.ctypes.data % 64) // 4 + 4
    return memory[at : at + count]


def _aligned(count: int) -> Any:
    memory = np.zeros(count + 32, np.float32)
    at = (-memory.ctypes.data % 64) // 4
    return memory[at : at + count]


@pytest.mark.parametrize(
    ("made", "is_copied"),
    [
        (_beside_alignment, True),
        (_aligned, False),
        (lambda count: _aligned(2 * count).view(np.float64), True),
        (lambda count: _aligned(2 * count)[::2], True),
    ],
)
def test_arrays_that_a_call_copies_are_timed(
    hooks: JaxHooks, made: Callable[[int], Any], *, is_copied: bool
) -> None:
    steps = _Steps(hooks)
    step = jax.jit(lambda w, table: w - 0.1 * jax.grad(lambda v: (v * table[:4]).mean())(w))
    w, table = jnp.ones(4), made(32_000)
    for _ in range(4):
        w = step(w, table)
    (found,) = steps.finder.host_arrays
    assert found.bytes == (table.nbytes if is_copied else 0)
    assert (found.copy_ns is not None) is is_copied


@pytest.mark.parametrize(
    ("rows", "samples"),
    [
        (lambda x: list(x), 8),
        (lambda x: [x[i : i + 1] for i in range(8)], 8),
        (lambda x: [x[i].copy() for i in range(8)], None),
        (lambda x: [x[i : i + 4] for i in range(0, 8, 4)], None),
    ],
)
def test_rows_of_one_array_are_samples(
    hooks: JaxHooks, rows: Callable[[Any], list[Any]], samples: int | None
) -> None:
    _Steps(hooks)
    act = jax.jit(lambda w, x: (w * x).sum())
    for _ in range(2):
        for row in rows(np.ones((8, 4), np.float32)):
            act(jnp.ones(4), row)
    assert [one.samples for one in hooks.functions if one.compiled is not None] == [samples]


def test_lines_of_checkpoints_and_of_float64_are_noted(hooks: JaxHooks) -> None:
    f = jax.checkpoint(jnp.sin)
    try:
        jax.config.update("jax_enable_x64", True)
    finally:
        jax.config.update(name="jax_enable_x64", val=False)
    here = Path(__file__).resolve()
    assert [Path(file).resolve() for file, _ in hooks.places.checkpoints] == [here]
    ((file, line),) = hooks.places.doubles
    assert Path(file).resolve() == here
    assert "jax_enable_x64" in here.read_text().splitlines()[line - 1]
    assert float(f(0.0)) == 0.0


@pytest.mark.parametrize("is_compiled", [True, False])
def test_gradients_of_single_samples_and_their_update_are_one_step(
    hooks: JaxHooks, *, is_compiled: bool
) -> None:
    steps = _Steps(hooks)

    @jax.jit
    def gradient(w: Any, x: Any) -> Any:
        return jax.grad(lambda v: ((x @ v) ** 2).mean())(w)

    def update(w: Any, total: Any) -> Any:
        return w - 0.1 * total

    if is_compiled:
        update = jax.jit(update)
    w = jnp.ones(4)
    for _ in range(9):
        total = jnp.zeros(4)
        for turn in range(8):
            total = total + gradient(w, np.full((2, 4), turn, np.float32))
        w = update(w, total)
    assert 6 <= len(steps.kinds) <= 9
    assert {kind for kind, _ in steps.kinds} == {"train 2x4"}


@pytest.mark.parametrize("is_updated", [True, False])
def test_an_update_is_not_awaited_after_parameters_changed_or_many_calls(
    hooks: JaxHooks, *, is_updated: bool
) -> None:
    steps = _Steps(hooks)
    gradient = jax.jit(lambda w, x: jax.grad(lambda v: ((x @ v) ** 2).mean())(w))
    jax.jit(lambda w, slopes: w - 0.1 * slopes)  # never called
    w = jnp.ones(4)
    for turn in range(70):
        slopes = gradient(w, np.full((2, 4), turn, np.float32))
        if is_updated:
            w = w - 0.1 * slopes
    assert steps.finder.anchor is not None
    assert not steps.finder.awaits_more(hooks.functions)


def test_gradients_without_an_update_are_steps(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    w = jnp.ones(4)
    gradient = jax.jit(lambda w, x: jax.grad(lambda v: ((x @ v) ** 2).mean())(w))
    for turn in range(70):
        gradient(w, np.full((2, 4), turn, np.float32))
    assert len(steps.kinds) >= 6


def test_donated_arguments_are_recorded(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    step = jax.jit(lambda w: w * 0.5, donate_argnums=0)
    w = jnp.ones(64)
    for _ in range(5):
        w = step(w)
    assert steps.finder.donates is True
    assert float(w[0]) == 0.5**5


def test_inference_is_delimited_by_its_longest_function(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    weights = jnp.ones((256, 256))
    model = jax.jit(lambda w, x: jnp.tanh(x @ w @ w @ w))
    small = jax.jit(lambda x: x + 1)
    for _ in range(8):
        small(jnp.float32(1))
        model(weights, jnp.ones((512, 256)))
    assert steps.finder.anchor is not None
    assert steps.finder.anchor.name == "<lambda>"
    assert steps.kinds[-1] == ("forward 512x256", 512)


def test_a_loop_of_jax_outside_of_compiled_functions_delimits_steps(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    def body(w: Any, x: Any) -> Any:
        value, slope = jax.value_and_grad(lambda v: ((x @ v) ** 2).mean())(w)
        return w - 0.1 * slope, value

    w = jnp.ones(4)
    for _ in range(6):
        w, _ = jax.lax.scan(body, w, np.ones((3, 8, 4), np.float32))
    assert steps.finder.anchor is not None
    assert steps.finder.anchor.name == "body"
    assert steps.kinds == [("train 3x8x4", 3)] * 4
    assert steps.finder.donates is None


def test_loops_inside_of_a_compiled_function_are_part_of_it(calls: _Calls) -> None:
    @jax.jit
    def step(w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, v: v * 2, w)

    assert float(step(jnp.float32(1))) == 8
    assert calls.names == ["step"]
    assert float(jax.lax.while_loop(lambda v: v < 5, lambda v: v + 1, 0)) == 5
    assert calls.names == ["step", "<lambda>"]


def test_a_function_compiled_ahead_of_its_calls_delimits_steps(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(lambda v: ((x @ v) ** 2).mean())(w)

    w, x = jnp.ones(4), jnp.ones((8, 4))
    program = step.lower(w, x).compile()
    (function,) = [one for one in hooks.functions if one.name == "step"]
    assert function.can_be_compiled_again
    for _ in range(6):
        w = program(w, x)
    assert steps.finder.anchor is not None
    assert steps.finder.anchor is function
    assert not function.can_be_compiled_again
    assert steps.kinds == [("train 8x4", 8)] * 4
    assert steps.finder.donates is True


def test_gradients_without_compilation_delimit_steps(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    def loss(w: Any, x: Any) -> Any:
        return ((x @ w) ** 2).mean()

    w = jnp.ones(4)
    for _ in range(6):
        _, slope = jax.value_and_grad(loss)(w, jnp.ones((8, 4)))
        w = w - 0.1 * slope
    assert steps.finder.anchor is not None
    assert steps.finder.anchor.name == "loss"
    assert steps.kinds == [("train 8x4", 8)] * 4


def test_evaluation_that_carries_metrics_is_not_a_step(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    train = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda v: ((x @ v) ** 2).mean())(w))
    evaluate = jax.jit(lambda total, w, x: total + (x @ w).mean())
    w = jnp.ones(4)
    for _ in range(3):
        for _ in range(6):
            w = train(w, jnp.ones((8, 4)))
        total = jnp.float32(0)
        for _ in range(4):
            total = evaluate(total, w, jnp.ones((8, 4)))
    assert steps.restarts == 0
    assert steps.kinds[-1] == ("train 8x4", 8)


def test_the_batch_of_numpy_arrays_names_a_step_of_two_functions(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)
    slopes_of = jax.jit(lambda w, x: jax.grad(lambda v: ((x @ v) ** 2).mean())(w))
    update = jax.jit(lambda w, slopes: w - 0.1 * slopes)
    w = jnp.ones(4)
    for _ in range(8):
        w = update(w, slopes_of(w, np.ones((16, 4), np.float32)))
    assert steps.kinds[-1] == ("train 16x4", 16)


WRAPPER = """
import jax

def jit_of_objects(function):
    def wrapped(*args):
        return function(*args)
    wrapped.__name__ = function.__name__
    return jax.jit(wrapped)
"""


def test_wrapper_of_a_library_is_distinguished_from_functions_of_the_script(
    hooks: JaxHooks, calls: _Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "objects_library.py").write_text(WRAPPER)
    monkeypatch.syspath_prepend(str(packages))
    library = importlib.import_module("objects_library")

    def first(x: Any) -> Any:
        return x + 1

    def second(x: Any) -> Any:
        return x + 2

    library.jit_of_objects(first)(jnp.ones(2))
    library.jit_of_objects(second)(jnp.ones(2))
    jax.jit(first)(jnp.ones(2))
    found = {(one.name, one.library): one.place for one in hooks.functions if one.place}
    here = {key for key, place in found.items() if place[0] == __file__}
    assert here == {("first", "objects_library"), ("second", "objects_library"), ("first", None)}


def test_a_batch_that_stays_the_same_labels_the_steps(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return ((x @ params["w"] + params["b"] - y) ** 2).mean()

        grads = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), state

    params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    state = {"m": jnp.ones(2), "v": jnp.ones(2)}
    x, y = jnp.ones((8, 4)), jnp.ones((8, 3))
    for _ in range(6):
        params, state = step(params, state, x, y)
    assert steps.kinds[-1] == ("train 8x4", 8)


def test_decoding_is_labelled_by_its_tokens_not_by_its_parameters(hooks: JaxHooks) -> None:
    steps = _Steps(hooks)

    @jax.jit
    def decode(params: Any, cache: Any, token: Any, at: Any) -> Any:
        x = params["table"][token]
        cache = [jax.lax.dynamic_update_slice(one, x[:, None], (0, at, 0)) for one in cache]
        return cache, jnp.argmax(sum(one.sum(1) for one in cache) @ params["out"], -1)[:, None]

    params = {"table": jnp.ones((50, 4)), "out": jnp.ones((4, 50))}
    cache, token = [jnp.zeros((2, 16, 4)) for _ in range(2)], jnp.zeros((2, 1), jnp.int32)
    for at in range(6):
        cache, token = decode(params, cache, token[:, 0], at)
        token = token.reshape(2, 1)
    assert steps.kinds[-1][0] == "forward 2"
