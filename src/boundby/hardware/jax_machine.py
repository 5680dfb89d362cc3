"""A device's roofs, measured with JAX: for machines without torch.

Fewer figures than with torch: matrix products, memory, the vector units, the cost of a compiled
call. Others stay unknown.
"""

from __future__ import annotations

import datetime
import importlib.util
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from boundby.hardware import datasheet
from boundby.hardware.device import Cache, Device, cpu_caches, cpu_name
from boundby.model import Machine, MemoryLevel, Overheads, Point, Roof
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.host_speed import addition_ns

Progress = Callable[[str, float], None]

_DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}
_SIDES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
# Bytes of one array of the memory sweep: the largest is much larger than any last-level cache.
_ARRAYS = {"cpu": (2**22, 2**24, 2**26, 2**28), "cuda": (2**26, 2**28, 2**30)}
_SAMPLES = 7  # for a median and its spread
_CALLS = 200  # per sample: together about a millisecond
# Products per element of the chain that measures the vector units: far beyond the ridge point.
_CHAIN = 256
_PYTHON_ADDITIONS = 300_000  # per sample: several milliseconds


def is_needed() -> bool:
    """Whether this environment has JAX and no torch."""
    find_spec = importlib.util.find_spec
    return find_spec("torch") is None and find_spec("jax") is not None


def identify(requested: str | None = None) -> Device:
    """The requested device; by default JAX's default device."""
    import jax

    devices = jax.local_devices(backend="cpu") if requested == "cpu" else jax.local_devices()
    _, _, index = (requested or "").partition(":")
    at = int(index) if index.isdecimal() else 0
    if at >= len(devices):
        raise BoundbyError(f"no device {requested}: jax {jax.__version__} has {len(devices)}")
    device = devices[at]
    if device.platform == "cpu":
        return _cpu(jax)
    if device.platform != "gpu":
        raise BoundbyError(
            f"measuring a {device.device_kind} is not supported yet: the datasheet is used",
            exit_code=CANNOT_MEASURE,
        )
    stats = device.memory_stats() or {}
    return Device(
        name=device.device_kind,
        kind="cuda",
        driver=str(getattr(device.client, "platform_version", "")).splitlines()[0],
        torch=f"jax {jax.__version__}",
        threads=0,
        index=at,
        memory_bytes=int(stats.get("bytes_limit", 0)),
        caches=(),
        processors=int(getattr(device, "core_count", 0) or 0),
    )


def _cpu(jax: Any) -> Device:
    import os

    import psutil

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = threads or 1
    return Device(
        name=cpu_name(),
        kind="cpu",
        driver=platform.release(),
        torch=f"jax {jax.__version__}",
        threads=threads,
        memory_bytes=psutil.virtual_memory().total,
        caches=cpu_caches(threads) or (Cache(name="memory.cache", capacity=32 * 1024**2),),
        processors=os.cpu_count() or 1,
    )


def measure(device: Device, *, progress: Progress) -> Machine:
    """Roofs and overheads of one device."""
    import jax

    at = jax.local_devices(backend="cpu" if device.kind == "cpu" else None)[device.index]
    with jax.default_device(at):
        return _measure(jax, device, progress)


def _measure(jax: Any, device: Device, progress: Progress) -> Machine:
    roofs: list[Roof] = []
    curves: dict[str, list[Point]] = {}
    for number, dtype in enumerate(_DTYPES[device.kind]):
        progress(f"{dtype} products", 0.15 * number)
        curve = _products(jax, dtype, _SIDES[device.kind])
        best = max(curve, key=lambda point: point.value)
        roofs.append(
            Roof(name=f"matmul.{dtype}", value=best.value, unit="FLOP/s", source="measured")
        )
        curves[f"matmul.{dtype}"] = curve
    progress("memory", 0.5)
    copies = _copies(jax, _ARRAYS[device.kind])
    curves["memory.copy"] = copies
    roofs.append(Roof(name="memory.dram", value=_slope(copies), unit="B/s", source="measured"))
    progress("vector units", 0.8)
    vector = _vector(jax, device.kind)
    if device.kind == "cpu":  # products run on the vector units
        vector = max(vector, *(roof.value for roof in roofs if roof.name == "matmul.float32"))
    roofs.append(Roof(name="vector.float32", value=vector, unit="FLOP/s", source="measured"))
    progress("overheads", 0.9)
    chip = datasheet.find_chip(device.name, device.memory_bytes)
    return Machine(
        device=device.name,
        kind=device.kind,
        chip=chip.name if chip else None,
        vendor=chip.vendor if chip else None,
        driver=device.driver,
        torch=device.torch,
        threads=device.threads,
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        quick=True,
        memory_bytes=device.memory_bytes,
        roofs=roofs,
        levels=[MemoryLevel(roof="memory.dram", capacity=None)],
        curves=curves,
        overheads=Overheads(
            compiled_call_ns=_call(jax), python_add_ns=addition_ns(_PYTHON_ADDITIONS)
        ),
    )


def _times(jax: Any, work: Callable[[], Any]) -> list[float]:
    """Times of single calls in ns, each with a sync; short work is called several times."""
    jax.block_until_ready(work())
    began = time.perf_counter_ns()
    jax.block_until_ready(work())
    count = max(1, int(2e6 / max(1, time.perf_counter_ns() - began)))
    samples = []
    for _ in range(_SAMPLES):
        began = time.perf_counter_ns()
        jax.block_until_ready([work() for _ in range(count)])
        samples.append((time.perf_counter_ns() - began) / count)
    return samples


def _products(jax: Any, dtype: str, sides: tuple[int, ...]) -> list[Point]:
    """Square products; the fastest sample counts, as for a roof."""
    multiply = jax.jit(lambda a, b: a @ b)
    curve = []
    for side in sides:
        a = jax.numpy.full((side, side), 0.5, dtype)
        ns = min(_times(jax, partial(multiply, a, a)))
        flops = 2.0 * side**3
        curve.append(Point(size=flops, value=flops / ns * 1e9, ns=ns, label=f"{side}"))
    return curve


def _copies(jax: Any, arrays: tuple[int, ...]) -> list[Point]:
    """One read and one write of each element."""
    add = jax.jit(lambda a: a + 1)
    curve = []
    for size in arrays:
        a = jax.numpy.zeros(size // 4, "float32")
        ns = min(_times(jax, partial(add, a)))
        curve.append(Point(size=2.0 * size, value=2.0 * size / ns * 1e9, ns=ns))
    return curve


def _slope(curve: list[Point]) -> float:
    """Bytes per second between the two largest sizes; if noise inverts them, the rate of the
    largest."""
    last, before = curve[-1], curve[-2]
    rate = (last.size - before.size) / max(1.0, last.ns - before.ns) * 1e9
    return rate if rate < 2 * last.value else last.value


def _vector(jax: Any, kind: str) -> float:
    elements = 2**22 if kind == "cpu" else 2**26

    def chain(x: Any) -> Any:
        for _ in range(_CHAIN):
            x = x * 1.0001 + 0.5
        return x

    a = jax.numpy.ones(elements, "float32")
    run = jax.jit(chain)
    return 2.0 * _CHAIN * elements / min(_times(jax, lambda: run(a))) * 1e9


def _call(jax: Any) -> float:
    """The host time of one call of a compiled function."""
    add = jax.jit(lambda a: a + 1)
    a = jax.numpy.zeros(8)
    jax.block_until_ready(add(a))
    samples = []
    for _ in range(_SAMPLES):
        began = time.perf_counter_ns()
        for _ in range(_CALLS):
            add(a)
        samples.append((time.perf_counter_ns() - began) / _CALLS)
        jax.block_until_ready(add(a))
    return statistics.median(samples)
