"""JAX programs with one mistake each, and the same programs without it.

    boundby run benchmarks/jax_cases.py gpt/remat       # the one with the mistake
    python benchmarks/jax_cases.py gpt/remat --measure  # both, in turn, in one process

A case is a pair of functions that make a step: a call that trains once and returns its loss.
`--scale` makes widths and batches larger, for GPUs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Step = Callable[[], Any]
Params = Any
_TURNS = 15


class Model(NamedTuple):
    """Parameters, the loss of a batch, and a batch as numpy arrays."""

    params: Params
    loss: Callable[..., Any]
    batch: tuple[np.ndarray[Any, Any], ...]


class Case(NamedTuple):
    fault: str
    wrong: Callable[[int], Step]
    right: Callable[[int], Step]


def mlp(scale: int, depth: int = 6) -> Model:
    keys = jax.random.split(jax.random.key(0), depth)
    width = 128 * scale
    params = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]

    def loss(params: Params, x: Any, y: Any) -> Any:
        for w in params:
            x = jnp.tanh(x @ w)
        return jnp.mean((x - y) ** 2)

    x = np.random.default_rng(0).normal(size=(64 * scale, width)).astype(np.float32)
    return Model(params, loss, (x, np.tanh(x)))


def gpt(scale: int, *, remat: bool = False, callback: bool = False, table: bool = False) -> Model:
    width, length, layers, words, heads = 64 * scale, 64, 4, 256, 4
    keys = iter(jax.random.split(jax.random.key(0), 2 + 4 * layers))

    def normal(*shape: int) -> Any:
        return jax.random.normal(next(keys), shape) * 0.05

    params = {
        "words": normal(words, width),
        "blocks": [
            {
                "qkv": normal(width, 3 * width),
                "out": normal(width, width),
                "up": normal(width, 4 * width),
                "down": normal(4 * width, width),
            }
            for _ in range(layers)
        ],
    }
    mask = np.tril(np.ones((length, length), bool))

    def block(p: Params, x: Any) -> Any:
        shape = (*x.shape[:2], heads, -1)
        q, k, v = (part.reshape(shape) for part in jnp.split(_norm(x) @ p["qkv"], 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]
        return x + jax.nn.gelu(_norm(x) @ p["up"]) @ p["down"]

    def loss(params: Params, tokens: Any, positions: Any) -> Any:
        x = params["words"][tokens[:, :-1]] + positions[:length, :width]
        for p in params["blocks"]:
            x = (jax.checkpoint(block) if remat else block)(p, x)
            if callback:
                jax.debug.callback(_seen.append, x.mean())
        picked = jax.nn.log_softmax(x @ params["words"].T)
        return -jnp.take_along_axis(picked, tokens[:, 1:, None], -1).mean()

    tokens = np.random.default_rng(0).integers(0, words, (8 * scale, length + 1))
    positions = np.zeros((20_000 if table else length, 64 * scale))
    return Model(params, loss, (tokens.astype(np.int32), positions))


_seen: list[Any] = []


def _norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def cnn(scale: int) -> Model:
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(3, 3, 3, 16), (3, 3, 16, 32), (32, 10)]
    params = [jax.random.normal(key, shape) * 0.1 for key, shape in zip(keys, shapes, strict=True)]

    def loss(params: Params, images: Any, labels: Any) -> Any:
        x = images
        for kernel in params[:2]:
            x = jax.lax.conv_general_dilated(
                x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
        picked = jax.nn.log_softmax(x.mean((1, 2)) @ params[2])
        return -jnp.take_along_axis(picked, labels[:, None], -1).mean()

    rng = np.random.default_rng(0)
    images = rng.normal(size=(32 * scale, 32, 32, 3)).astype(np.float32)
    return Model(params, loss, (images, rng.integers(0, 10, 32 * scale).astype(np.int32)))


def lstm(scale: int, *, callback: bool = False) -> Model:
    width = 64 * scale
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "x": jax.random.normal(keys[0], (32, 4 * width)) * 0.1,
        "h": jax.random.normal(keys[1], (width, 4 * width)) * 0.1,
    }

    def loss(params: Params, xs: Any, ys: Any) -> Any:
        def turn(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ params["x"] + h @ params["h"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        start = jnp.zeros((xs.shape[1], width))
        (h, _), _ = jax.lax.scan(turn, (start, start), xs)
        if callback:
            for row in range(4):
                jax.debug.callback(_seen.append, h[row].mean())
        return jnp.mean((h - ys) ** 2)

    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 16 * scale, 32)).astype(np.float32)
    return Model(params, loss, (xs, np.zeros((16 * scale, width), np.float32)))


def adam(params: Params, state: Any, gradients: Any) -> Any:
    """Adam as optax has it, one operator after the other."""
    first, second = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, gradients)
    params = jax.tree.map(
        lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second
    )
    return params, (first, second)


def trained(
    make: Callable[[int], Model],
    scale: int,
    *,
    jit_update: bool = True,
    donate: bool = True,
    jit_again: bool = False,
    jit_at_all: bool = True,
    fetch: bool = False,
    work: Callable[..., Any] | None = None,
    keep_on_host: bool = False,
    metrics: bool = False,
) -> Step:
    """A training step of a model, each mistake an argument."""
    model = make(scale)
    zeros = jax.tree.map(jnp.zeros_like, model.params)
    held: list[Any] = [model.params, (zeros, jax.tree.map(jnp.zeros_like, model.params))]
    batch = model.batch if keep_on_host else tuple(map(jnp.asarray, model.batch))

    def whole(params: Params, state: Any, *batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(model.loss)(params, *batch)
        return (*adam(params, state, gradients), loss)

    gradient = jax.jit(jax.value_and_grad(model.loss))
    compiled = jax.jit(whole, donate_argnums=(0, 1) if donate else ())

    def step() -> Any:
        given = work(*model.batch) if work is not None else batch
        if not jit_at_all:
            held[0], held[1], loss = whole(held[0], held[1], *given)
        elif not jit_update:
            loss, gradients = gradient(held[0], *given)
            held[0], held[1] = adam(held[0], held[1], gradients)
        else:
            run = jax.jit(lambda *args: whole(*args)) if jit_again else compiled
            held[0], held[1], loss = run(held[0], held[1], *given)
        if metrics:
            for tree in held[0]:
                loss = loss + 0 * jnp.sqrt((tree**2).sum()) / tree.size
        if fetch:
            _seen.append(float(loss))
        return loss

    return step


def augmented(images: Any, *rest: Any) -> Any:
    """Images shifted and normalised one by one, as scripts do it in their loop."""
    made = np.empty_like(images)
    for at, image in enumerate(images):
        moved = np.roll(image, at % 5 - 2, axis=0)
        made[at] = (moved - moved.mean()) / (moved.std() + 1e-6)
    return made, *rest


def unchanged(*batch: Any) -> Any:
    return batch


def per_sample(scale: int, *, looped: bool) -> Step:
    """Gradients of single samples, clipped and added."""
    width = 32 * scale
    keys = jax.random.split(jax.random.key(0), 2)
    held = [[jax.random.normal(key, (width, width)) * 0.1 for key in keys]]
    xs = jnp.asarray(np.random.default_rng(0).normal(size=(12, width)).astype(np.float32))

    def loss(params: Params, x: Any) -> Any:
        return jnp.mean(jnp.tanh(jnp.tanh(x @ params[0]) @ params[1]) ** 2)

    def clipped(params: Params, x: Any) -> Any:
        gradients = jax.grad(loss)(params, x)
        norm = jnp.sqrt(sum((g**2).sum() for g in gradients))
        return [g * jnp.minimum(1.0, 1.0 / norm) for g in gradients]

    def train(params: Params, xs: Any) -> Any:
        if looped:
            total = [jnp.zeros_like(w) for w in params]
            for at in range(xs.shape[0]):
                total = [t + g for t, g in zip(total, clipped(params, xs[at]), strict=True)]
        else:
            every = jax.vmap(partial(clipped, params))(xs)
            total = [g.sum(0) for g in every]
        return [w - 0.1 * t for w, t in zip(params, total, strict=True)], total[0].sum()

    compiled = jax.jit(train)

    def step() -> Any:
        held[0], seen = compiled(held[0], xs)
        return seen

    return step


def decoding(scale: int, *, grows: bool, donate: bool = True) -> Step:
    """One token more a step: by a longer sequence, or into a cache of fixed size."""
    width, most = 64 * scale, 4096
    weights = jax.random.normal(jax.random.key(0), (width, width)) / width**0.5
    held: list[Any] = [jnp.zeros((8, 8 if grows else most, width)), 0]

    def longer(weights: Any, states: Any) -> Any:
        scores = jax.nn.softmax(states @ states[:, -1:].swapaxes(1, 2), 1)
        return jnp.tanh((scores * states).sum(1) @ weights)

    def cached(weights: Any, states: Any, at: Any) -> Any:
        last = jax.lax.dynamic_slice_in_dim(states, at, 1, 1)
        scores = jax.nn.softmax(states @ last.swapaxes(1, 2), 1)
        made = jnp.tanh((scores * states).sum(1) @ weights)
        return jax.lax.dynamic_update_slice_in_dim(states, made[:, None], at + 1, 1), made

    run_longer = jax.jit(longer)
    run_cached = jax.jit(cached, donate_argnums=(1,) if donate else ())

    def step() -> Any:
        if grows:
            made = run_longer(weights, held[0])
            held[0] = jnp.concatenate([held[0], made[:, None]], 1)
            return made
        held[0], made = run_cached(weights, held[0], held[1] % (most - 2))
        held[1] += 1
        return made

    return step


def _pair(
    fault: str,
    wrong_model: Callable[[int], Model],
    right_model: Callable[[int], Model] | None = None,
    *,
    both: dict[str, Any] | None = None,
    right: dict[str, Any] | None = None,
    **wrong: Any,
) -> Case:
    always = both or {}

    def make_wrong(scale: int) -> Step:
        return trained(wrong_model, scale, **{**always, **wrong})

    def make_right(scale: int) -> Step:
        return trained(right_model or wrong_model, scale, **{**always, **(right or {})})

    return Case(fault, make_wrong, make_right)


CASES: dict[str, Case] = {
    "mlp/eager-update": _pair("jax-eager-operators", mlp, jit_update=False),
    "mlp/unjitted": _pair("jax-eager-operators", mlp, jit_at_all=False),
    "mlp/jit-in-loop": _pair("jax-recompilation", mlp, jit_again=True),
    "mlp/no-donation": _pair("jax-no-donation", mlp, donate=False),
    "mlp/eager-metrics": _pair("jax-eager-operators", mlp, metrics=True),
    "deep-mlp/eager-update": _pair("jax-eager-operators", partial(mlp, depth=24), jit_update=False),
    "deep-mlp/unjitted": _pair("jax-eager-operators", partial(mlp, depth=24), jit_at_all=False),
    "gpt/remat": _pair("jax-rematerialisation", partial(gpt, remat=True), gpt),
    "gpt/callback": _pair("jax-host-callbacks", partial(gpt, callback=True), gpt),
    "gpt/table": _pair("jax-implicit-transfers", partial(gpt, table=True), keep_on_host=True),
    "gpt/eager-update": _pair("jax-eager-operators", gpt, jit_update=False),
    "gpt/no-donation": _pair("jax-no-donation", gpt, donate=False),
    "cnn/numpy-batch": _pair("python-in-step", cnn, work=augmented, right={"work": unchanged}),
    "cnn/eager-update": _pair("jax-eager-operators", cnn, jit_update=False),
    "cnn/unjitted": _pair("jax-eager-operators", cnn, jit_at_all=False),
    "cnn/jit-in-loop": _pair("jax-recompilation", cnn, jit_again=True),
    "lstm/callback": _pair("jax-host-callbacks", partial(lstm, callback=True), lstm),
    "lstm/eager-update": _pair("jax-eager-operators", lstm, jit_update=False),
    "lstm/fetch": _pair("host-sync", lstm, fetch=True),
    "samples/looped": Case(
        "jax-looped-samples", partial(per_sample, looped=True), partial(per_sample, looped=False)
    ),
    "decode/growing": Case(
        "jax-recompilation", partial(decoding, grows=True), partial(decoding, grows=False)
    ),
    "decode/no-donation": Case(
        "jax-no-donation",
        partial(decoding, grows=False, donate=False),
        partial(decoding, grows=False),
    ),
}


def measured(case: Case, scale: int) -> list[float]:
    """Of blocks of steps in turn, the time with the mistake over that without it."""
    wrong, right = case.wrong(scale), case.right(scale)
    steps = 3
    for _ in range(3):
        jax.block_until_ready((wrong(), right()))
    return [_timed(wrong, steps) / _timed(right, steps) for _ in range(_TURNS)]


def _timed(step: Step, steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        loss = step()
    jax.block_until_ready(loss)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    case = CASES[options.case]
    if options.measure:
        ratios = measured(case, options.scale)
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(json.dumps({"low": low, "middle": middle, "high": high}))
        return
    step = case.wrong(options.scale)
    for _ in range(options.steps):
        step()


if __name__ == "__main__":
    main()
