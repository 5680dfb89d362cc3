"""Everything that touches private or version-dependent attributes of jax."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from boundby.runtime.cores import cores_at_hand

# Functions of jax that make a compiled function, and their namespaces. Private copies, which jax
# itself calls, are left alone.
COMPILERS = (("", "jit"), ("", "pmap"), ("experimental.pjit", "pjit"))
# Functions that make a Python function which computes gradients operator by operator.
GRADIENTS = (("", "grad"), ("", "value_and_grad"), ("", "vjp"))
# The setting that switches float64 on.
DOUBLES = "jax_enable_x64"
# Functions of jax whose argument's values are computed again for the gradients.
CHECKPOINTS = (("", "checkpoint"), ("", "remat"))
# Loops that compile their body where they are called outside of a compiled function: namespace,
# name, and position and name of the body.
LOOPS = (
    ("lax", "scan", 0, "f"),
    ("lax", "fori_loop", 2, "body_fun"),
    ("lax", "while_loop", 1, "body_fun"),
)
# Of XLA's memory on a CPU, in bytes.
_ALIGNMENT = 64
# What a compiled function offers beside being called: `lower`, `trace`, `eval_shape`, ...
_PUBLIC = ("lower", "trace", "eval_shape", "clear_cache", "_cache_size", "_fun", "_jit_info")


def namespace(jax: Any, path: str) -> Any:
    """A module of jax by its path inside the package; None where this version has none."""
    found = jax
    for part in path.split(".") if path else ():
        found = getattr(found, part, None)
    return found


Around = Callable[[Callable[..., Any]], Callable[..., Any]]


class Kind(NamedTuple):
    """The properties of an array or a number that jax compiles a function for; `devices` if it is
    spread over several."""

    shape: tuple[int, ...]
    dtype: str
    is_weak: bool
    devices: str


def kind_of(jax: Any, value: Any) -> Kind | None:
    """The kind of an argument; None for objects that are no array and no number."""
    try:
        of_it = jax.typeof(value)
        shape = tuple(int(extent) for extent in of_it.shape)
    except (AttributeError, TypeError, ValueError):
        return None
    sharding = getattr(value, "sharding", None)
    is_spread = sharding is not None and len(sharding.device_set) > 1
    devices = str(getattr(sharding, "spec", sharding)) if is_spread else ""
    return Kind(shape, str(of_it.dtype), bool(getattr(of_it, "weak_type", False)), devices)


def is_compiled_function(value: object) -> bool:
    return callable(value) and hasattr(value, "lower")


def public_attributes(compiled: Any) -> dict[str, Any]:
    """The names of public attributes that a wrapper of a compiled function must have too."""
    return {name: getattr(compiled, name) for name in _PUBLIC if hasattr(compiled, name)}


def ahead(jax: Any, around_compile: Around, around_call: Around) -> list[tuple[Any, str, Around]]:
    """What to replace to see programs that are compiled ahead of their calls: class, name, how."""
    return [
        (jax.stages.Lowered, "compile", around_compile),
        (jax.stages.Compiled, "__call__", around_call),
    ]


def variants(compiled: Any) -> int | None:
    """For how many kinds of arguments a function was compiled."""
    size = getattr(compiled, "_cache_size", None)
    return int(size()) if size is not None else None


def is_tracing() -> bool:
    """Whether Python runs under a transformation, where calls compute nothing yet."""
    from jax._src import core

    return not core.trace_state_clean()


def leaves(jax: Any, tree: Any) -> list[Any]:
    """The arrays of a tree of arguments or results."""
    found = jax.tree_util.tree_leaves(tree)
    return [leaf for leaf in found if isinstance(leaf, jax.Array) and is_waitable(leaf)]


def is_waitable(value: Any) -> bool:
    """Whether it is an array that tells when it was computed: arrays of random keys do not."""
    return hasattr(value, "is_ready")


def is_numpy(value: Any) -> bool:
    """An array of numpy, found without importing it."""
    return type(value).__module__ == "numpy" and type(value).__name__ in ("ndarray", "memmap")


def is_copied(jax: Any, array: Any) -> bool:
    """Whether a call copies an array of numpy: a CPU's programs read those whose memory begins at a
    multiple of 64 bytes in place, if their dtype is one that jax computes in."""
    if jax.default_backend() != "cpu":
        return True
    is_same_dtype = jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype
    is_aligned = array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0
    return not (is_same_dtype and is_aligned)


def copy_ns(jax: Any, arrays: Sequence[Any]) -> float:
    """How long the copy of arrays of numpy to the device takes; the second time, because the first
    may need new memory."""
    spent = 0.0
    for _ in range(2):
        began = time.perf_counter_ns()
        jax.block_until_ready(jax.device_put(list(arrays)))
        spent = float(time.perf_counter_ns() - began)
    return spent


def is_ready_to_wait(array: Any) -> bool:
    """Whether waiting for an array is possible: its memory was not donated."""
    return not array.is_deleted()


def is_ready(array: Any) -> bool:
    """Whether the device has done what an array comes from; unknown where it was donated."""
    return not array.is_deleted() and bool(array.is_ready())


def is_computed(array: Any) -> bool:
    """Whether the device has done what an array comes from; so too where it was donated."""
    return bool(array.is_deleted() or array.is_ready())


def wait_for_all(jax: Any) -> None:
    """Wait until every array that is alive was computed."""
    for array in jax.live_arrays():
        if is_ready_to_wait(array):
            array.block_until_ready()


def platform(jax: Any) -> str:
    """`cpu`, `gpu` or `tpu`: where computations run by default."""
    return str(jax.default_backend())


def threads() -> int:
    """How many threads XLA's operators use on a CPU: it does not read OMP_NUM_THREADS."""
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdecimal() else cores_at_hand()


def start_profiler(jax: Any, folder: Path) -> None:
    """Profile without Python calls, whose cost falls on the host side of every step."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2
    jax.profiler.start_trace(str(folder), profiler_options=options)


def stop_profiler(jax: Any) -> None:
    jax.profiler.stop_trace()


def on_compile(jax: Any, on_compilation: Callable[[str, float, str], None]) -> Callable[[], None]:
    """Call `on_compilation(event, seconds, function)` at each compilation; returns its removal."""

    def listen(event: str, seconds: float, **facts: Any) -> None:
        on_compilation(event, seconds, str(facts.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(listen)

    def undo() -> None:
        from jax._src import monitoring

        for name in (
            "unregister_event_duration_listener",
            "_unregister_event_duration_listener_by_callback",
        ):
            remove = getattr(monitoring, name, None)
            if remove is not None:
                remove(listen)
                return

    return undo
