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
