"""Matrix FLOP/s per dtype: the best of a sweep of shapes is the roof, the sweep is its curve.

Square products alone miss the roof: in a BERT step `addmm` ran at 807 TF/s on an H200 where squares
reached at most 779. A GPU that runs at full power for a second slows down, so the short bursts of
the sweep (the roof: nothing is faster) and a second of continuous work are measured separately.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from boundby.hardware import onednn
from boundby.hardware.device import Device
from boundby.hardware.stopwatch import Stopwatch, Timing, Workload
from boundby.model import Point, Record, Roof

Shape = tuple[int, int, int]  # rows, inner, columns

_CUDA_SQUARES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)  # measured sides
_CPU_SQUARES = (64, 128, 256, 512, 1024, 2048, 4096)  # measured sides
# Rows of tokens times the weights of common transformer layers.
_CUDA_RECTANGLES = tuple(
    (rows, inner, columns)
    for rows in (4096, 8192, 16384)
    for inner, columns in ((1024, 4096), (4096, 1024), (4096, 4096), (2048, 8192))
)
_CPU_RECTANGLES = tuple(
    (rows, inner, columns)
    for rows in (1024, 4096)
    for inner, columns in ((512, 2048), (2048, 512), (768, 3072))
)
# If a product takes longer than this, larger ones are not tried: it reached its roof long before.
_LONGEST_NS = {"cuda": 60e6, "cpu": 250e6}

# On an H200 20 ms at full power run at 795 TF/s, 100 ms at 741; after a longer pause the first
# products are slow again, while the clock rises.
_BURST_S = 0.015
_REST_S = 0.03  # a pause between two bursts, twice as long as one
_BURSTS = 2  # besides the first
_CPU_S = 0.08  # time of one measurement on a CPU
_LEAST_SIDE = 128  # smaller products are dominated by their launch


class Sweep(Record, frozen=True, kw_only=True):
    """The rates of one dtype."""

    roofs: list[Roof]
    curve: list[Point]


def dtypes(device: Device) -> tuple[str, ...]:
    """The dtypes to try on a device; those it cannot multiply are found by trying."""
    if device.kind == "cpu":
        return ("float32", "bfloat16", "float16", "int8", "float64")
    return ("bfloat16", "float16", "float8", "int8", "tf32", "float32", "float64")


def shapes(device: Device, *, quick: bool) -> tuple[Shape, ...]:
    """Squares from tiny to large, then rectangles."""
    cpu = device.kind == "cpu"
    sides = _CPU_SQUARES if cpu else _CUDA_SQUARES
    rectangles = _CPU_RECTANGLES if cpu else _CUDA_RECTANGLES
    squares = tuple((side, side, side) for side in sides)
    if quick:
        return (squares[3:5] + rectangles[:3]) if cpu else (squares[5:8] + rectangles[1:6:2])
    return squares + rectangles


def sweep(
    device: Device,
    dtype: str,
    stopwatch: Stopwatch,
    *,
    quick: bool,
    tick: Callable[[], None],
) -> Sweep | None:
    """Burst roof and curve of one dtype; None if the device cannot multiply it."""
    curve: list[Point] = []
    best: tuple[float, Timing] | None = None
    with tf32(enabled=dtype == "tf32"), onednn.setting_restored():
        for shape in shapes(device, quick=quick):
            tick()
            rows, inner, columns = shape
            flops = 2.0 * rows * inner * columns
            if best is not None and flops / best[0] * 1e9 > _LONGEST_NS[device.kind]:
                continue
            work = product(device, dtype, shape)
            if work is None:
                return None
            timing = _time_burst(device, work, stopwatch, quick=quick)
            rate = flops / timing.ns * 1e9
            label = f"{rows}x{inner}x{columns}"
            curve.append(Point(size=flops, value=rate, ns=timing.ns, label=label))
            if best is None or rate > best[0]:
                best = (rate, timing)
    if best is None:
        return None
    unit = "OP/s" if dtype == "int8" else "FLOP/s"
    roof = Roof(
        name=f"matmul.{dtype}",
        value=best[0],
        unit=unit,
        source="measured",
        spread=best[1].spread,
        note=max(curve, key=lambda point: point.value).label,
    )
    return Sweep(roofs=[roof], curve=sorted(curve, key=lambda point: point.size))


def sustained(
    device: Device, dtype: str, stopwatch: Stopwatch, burst: Roof, *, seconds: float
) -> Roof | None:
    """The rate after some continuous work: lower than the burst if power is the limit."""
    side = affordable_side(device.kind, 2048 if device.kind == "cpu" else 8192, burst.value)
    flops = 2.0 * side**3
    rates: list[float] = []
    with tf32(enabled=dtype == "tf32"), onednn.setting_restored():
        work = product(device, dtype, (side, side, side))
        if work is None:
            return None
        batch = max(1, round(0.05 * burst.value / flops))
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            for _ in range(batch):
                work()
            stopwatch.sync()
            rates.append(flops * batch / (time.perf_counter() - start))
    settled = Timing.of(rates[len(rates) // 2 :])
    return Roof(
        name=f"{burst.name}.sustained",
        value=settled.ns,
        unit=burst.unit,
        source="measured",
        spread=settled.spread,
        note=f"continuous work, the last {seconds / 2:.1f} s",
    )


def affordable_side(kind: str, side: int, rate: float) -> int:
    """The side of a square product: the wanted side, halved until the product is short enough at
    this rate.

    Some CPUs have no instruction for a dtype: a product of 2,048 in bfloat16 takes a minute there.
    """
    while side > _LEAST_SIDE and 2e9 * side**3 / rate > _LONGEST_NS[kind]:
        side //= 2
    return side


def _time_burst(device: Device, work: Workload, stopwatch: Stopwatch, *, quick: bool) -> Timing:
    """The best time of a few short bursts, on a GPU each after a pause: neither hot nor at a low
    clock."""
    if device.kind == "cpu":
        return stopwatch.time(work, seconds=_BURST_S if quick else _CPU_S)
    timings = [stopwatch.time(work, seconds=_BURST_S)]
    for _ in range(0 if quick else _BURSTS):
        time.sleep(_REST_S)
        timings.append(stopwatch.time(work, seconds=_BURST_S))
    return min(timings, key=lambda timing: timing.ns)


@contextlib.contextmanager
def tf32(*, enabled: bool) -> Iterator[None]:
    """Allow or forbid float32 products on the matrix units."""
    import torch

    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    switch.allow_tf32 = enabled
    try:
        yield
    finally:
        switch.allow_tf32 = before


def product(device: Device, dtype: str, shape: Shape) -> Workload | None:
    """A product ready to be called; None if this device or torch cannot compute it."""
    import torch

    try:
        work = _operands(torch, device, dtype, shape)
        work()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError, AttributeError):
        return None
    return work


def _operands(torch: Any, device: Device, dtype: str, shape: Shape) -> Workload:
    rows, inner, columns = shape
    target = device.target
    if dtype == "int8":
        a = torch.randint(-127, 128, (rows, inner), dtype=torch.int8, device=target)
        b = torch.randint(-127, 128, (columns, inner), dtype=torch.int8, device=target).t()
        return lambda: torch._int_mm(a, b)
    if dtype == "float8":
        a = torch.randn(rows, inner, device=target).to(torch.float8_e4m3fn)
        b = torch.randn(columns, inner, device=target).to(torch.float8_e4m3fn).t()
        unit_scale = torch.ones((), device=target)
        return lambda: torch._scaled_mm(
            a,
            b,
            scale_a=unit_scale,
            scale_b=unit_scale,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    real = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    a = torch.randn(rows, inner, dtype=real, device=target)
    b = torch.randn(columns, inner, dtype=real, device=target).t()
    out = torch.empty(rows, columns, dtype=real, device=target)
    return lambda: torch.mm(a, b, out=out)
