"""Copies of a program's arguments in a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boundby.capture.xplane.trace import read

jax = pytest.importorskip("jax")
jnp = jax.numpy


def cached(cache: Any, x: Any, at: Any) -> Any:
    return jax.lax.dynamic_update_slice(cache, x, (at, 0))


def _copies(folder: Path, **options: Any) -> list[bool]:
    step = jax.jit(cached, **options)
    x = jnp.ones((1, 64))
    cache = jax.block_until_ready(step(jnp.zeros((64, 64)), x, 1))
    jax.profiler.start_trace(str(folder))
    jax.block_until_ready(step(cache, x, 2))
    jax.profiler.stop_trace()
    (path,) = folder.rglob("*.xplane.pb")
    return [
        module.instruction(node).copies_argument
        for module in read(path).modules()
        for node in module.entry.nodes
        if node.opcode == "copy"
    ]


def test_undonated_argument_is_copied_before_an_update(tmp_path: Path) -> None:
    assert _copies(tmp_path / "kept") == [True]
    assert _copies(tmp_path / "donated", donate_argnums=0) == []


def _by_time(cache: Any, key: Any, query: Any, at: Any) -> Any:
    cache = jax.lax.dynamic_update_slice(cache, key[:, None], (0, at, 0, 0))
    return cache, jnp.einsum("bhd,bthd->bht", query, cache)


def _by_head(cache: Any, key: Any, query: Any, at: Any) -> Any:
    cache = jax.lax.dynamic_update_slice(cache, key[..., None], (0, 0, 0, at))
    return cache, jnp.einsum("bhd,bhdt->bht", query, cache)


@pytest.mark.parametrize(
    ("decode", "shape", "moved"),
    [(_by_time, (4, 256, 6, 32), {"float32[4,256,6,32]"}), (_by_head, (4, 6, 32, 256), set())],
)
def test_cache_kept_in_another_order_than_products_read_it_is_transposed(
    tmp_path: Path, decode: Any, shape: tuple[int, ...], moved: set[str]
) -> None:
    step = jax.jit(decode, donate_argnums=0)
    key = jnp.ones((4, 6, 32))
    cache, _ = jax.block_until_ready(step(jnp.zeros(shape), key, key, 1))
    jax.profiler.start_trace(str(tmp_path))
    jax.block_until_ready(step(cache, key, key, 2))
    jax.profiler.stop_trace()
    (path,) = tmp_path.rglob("*.xplane.pb")
    found = [
        module.instruction(node)
        for module in read(path).modules()
        for node in module.entry.nodes
        if module.instruction(node).transposes_argument
    ]
    sizes = {
        f"{one.inputs[0][0].dtype}[{','.join(map(str, one.inputs[0][0].shape))}]" for one in found
    }
    assert sizes == moved
