"""Memory bandwidth over working-set size, and from it one roof per level of the hierarchy.

A roof is the slope of t = t0 + bytes / bandwidth over the sizes that fit into a level: the plain
rate of small copies is low only because it contains t0. The fastest access pattern gives the roof,
because nothing may exceed it; each pattern's own slope is kept beside it. In-place updates are left
out: on a CPU, which reads a cache line before it writes to it, two cores moved 35 GB/s with them
and 21 GB/s in a copy.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import FEWEST_SAMPLES, Stopwatch, Timing, Workload
from boundby.model import MemoryLevel, Point, Record, Roof, units
from boundby.model.machine import UPDATE

_MIB = 1024**2  # definition
_RANDOM_ELEMENTS = 4 * _MIB  # a block that is repeated: drawing all numbers would take seconds
# Bytes moved per byte of one operand.
PATTERNS = {"read": 1, "write": 1, "copy": 2, "add": 3, UPDATE: 2}
_SMALLEST = 64 * 1024  # bytes: just above the innermost cache of most cores
_LARGEST = {"cuda": 4096 * _MIB, "cpu": 1024 * _MIB}
_QUICK_LARGEST = {"cuda": 1024 * _MIB, "cpu": 256 * _MIB}
# A set this many times the cache size finds nothing of itself in the cache on the next pass.
_PAST_CACHE = 2.0
_WITHIN_CACHE = 0.5  # leaves room for other data in the cache
# Where no measured set exceeds the caches, as with the 480 MiB that a virtual machine of two cores
# reports of its host, these sets stand for those beyond: from this share of the largest one on.
_LARGEST_SETS = 0.25
# Smaller sets than this share of a level take hardly longer than t0: they say nothing about its
# slope.
_OF_CACHE = 1 / 16
_FINE_UP_TO = {"cuda": 256 * _MIB, "cpu": 1024 * _MIB}
# The largest t0 of a fit beyond all caches: this share of its shortest pass, or this many times the
# shortest pass of all, which is hardly more than t0.
_LITTLE, _SHORT_PASSES = 0.1, 4
_FEWEST_POINTS = 3  # for a line through them
# From this ratio on, in-place updates are faster than everything else, beyond noise.
_CLEARLY_FASTER = 1.1
_REPEATS = {"cuda": 1, "cpu": 3}
# A CPU reads fastest row by row: a plain sum of everything runs at two thirds of that rate.
_ROW = 4096


class Bandwidths(Record, frozen=True, kw_only=True):
    roofs: list[Roof]
    levels: list[MemoryLevel]
    curves: dict[str, list[Point]]
    t0_ns: float | None
    warnings: list[str]


class Line(Record, frozen=True, kw_only=True):
    """t = t0 + bytes * slope."""

    t0_ns: float
    bytes_per_s: float


def operand_sizes(device: Device, free_bytes: int, *, quick: bool) -> list[int]:
    """Powers of two (and halfway between, unless quick), as far as free memory allows."""
    largest = (_QUICK_LARGEST if quick else _LARGEST)[device.kind]
    largest = min(largest, free_bytes // 4)
    sizes = []
    size = _SMALLEST
    while size <= largest:
        sizes.append(size)
        halfway = size * 3 // 2
        if not quick and halfway <= min(largest, _FINE_UP_TO[device.kind]):
            sizes.append(halfway)
        size *= 2
    return sizes


def measure(
    device: Device,
    stopwatch: Stopwatch,
    *,
    free_bytes: int,
    quick: bool,
    tick: Callable[[], None],
) -> Bandwidths:
    sizes = operand_sizes(device, free_bytes, quick=quick)
    samples: dict[tuple[str, float], list[Timing]] = {}
    passes = list(_passes(device, sizes))
    for repeat in range(1 if quick else _REPEATS[device.kind]):
        for pattern, size, work in passes:
            tick()
            seconds, fewest = (0.01 if quick else 0.03, FEWEST_SAMPLES) if not repeat else (0.01, 2)
            timing = stopwatch.time(work, seconds=seconds, fewest=fewest)
            samples.setdefault((pattern, float(PATTERNS[pattern] * size)), []).append(timing)
    return _roofs(device, samples)


def fit(points: list[Point]) -> Line:
    """The line through the points with the least relative error, t0 never negative."""
    import numpy as np

    ns = np.array([point.ns for point in points])
    touched = np.array([point.size for point in points])
    rows = np.stack([1 / ns, touched / ns], axis=1)
    (t0, slope), *_ = np.linalg.lstsq(rows, np.ones(len(ns)), rcond=None)
    fastest = max(point.value for point in points)
    if t0 < 0 or slope <= 0:
        return Line(t0_ns=0.0, bytes_per_s=fastest)
    return Line(t0_ns=float(t0), bytes_per_s=float(1e9 / slope))


def _roofs(device: Device, samples: dict[tuple[str, float], list[Timing]]) -> Bandwidths:
    """Other programs that use the same memory only add time: the roof is from the fastest samples,
    a pattern's own rate from the median ones."""
    fastest = _curves({key: min(timings, key=_ns) for key, timings in samples.items()})
    usual = _curves(
        {key: sorted(timings, key=_ns)[len(timings) // 2] for key, timings in samples.items()}
    )
    roofs: list[Roof] = []
    levels: list[MemoryLevel] = []
    warnings: list[str] = []
    t0: float | None = None
    largest = max((size for _, size in samples), default=0.0)
    for name, capacity, low, high in _ranges(device):
        if capacity is None and samples and low > largest:
            low = _LARGEST_SETS * largest
            warnings.append(
                f"{name}: measured with sets of up to {units.size(largest)}, which the last cache "
                "may hold: it may be too high"
            )
        highest = _slopes(fastest, capacity, low, high)
        slopes = _slopes(usual, capacity, low, high)
        if not slopes:
            warnings.append(f"{name}: too little memory is free to measure it")
            continue
        # In-place updates have their own roof: other patterns do not reach it.
        update = highest.pop(UPDATE, None)
        best = max(highest, key=lambda pattern: highest[pattern].bytes_per_s)
        inside = [point.size for point in fastest[best] if low <= point.size <= high]
        spread = max(timing.spread for size in inside for timing in samples[best, size])
        roofs.append(_roof(name, highest[best].bytes_per_s, spread, best))
        roofs += [
            _roof(f"{name}.{pattern}", line.bytes_per_s, None, None)
            for pattern, line in slopes.items()
            if pattern != UPDATE
        ]
        if update and update.bytes_per_s > _CLEARLY_FASTER * highest[best].bytes_per_s:
            roofs.append(_roof(f"{name}.{UPDATE}", update.bytes_per_s, None, "in place"))
        levels.append(MemoryLevel(roof=name, capacity=capacity))
        if t0 is None and "copy" in slopes:
            t0 = slopes["copy"].t0_ns
    named = {f"memory.{pattern}": curve for pattern, curve in usual.items()}
    return Bandwidths(roofs=roofs, levels=levels, curves=named, t0_ns=t0, warnings=warnings)


def _ns(timing: Timing) -> float:
    return timing.ns


def _curves(timings: dict[tuple[str, float], Timing]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {pattern: [] for pattern in PATTERNS}
    for (pattern, touched), timing in timings.items():
        curves[pattern].append(
            Point(size=touched, value=touched / timing.ns * 1e9, ns=timing.ns, label=pattern)
        )
    return curves


def _slopes(
    curves: dict[str, list[Point]], capacity: int | None, low: float, high: float
) -> dict[str, Line]:
    slopes: dict[str, Line] = {}
    for pattern, curve in curves.items():
        # What is read and written in place occupies memory once.
        times = 2 if pattern == UPDATE else 1
        points = [point for point in curve if low <= point.size / times <= high]
        if capacity is None and points:
            shortest_ns = min(point.ns for point in curve)
            slopes[pattern] = _slope_or_plain_rate(points, shortest_ns)
        elif len(points) >= _FEWEST_POINTS:
            slopes[pattern] = fit(points)
    return slopes


def _slope_or_plain_rate(points: list[Point], shortest_ns: float) -> Line:
    """The fitted slope beyond all caches, or the plain rate if noise makes the fit unreliable: few
    points, or a t0 that is too large."""
    line = fit(points)
    most = max(_LITTLE * min(point.ns for point in points), _SHORT_PASSES * shortest_ns)
    if len(points) >= _FEWEST_POINTS and line.t0_ns < most:
        return line
    return Line(t0_ns=0.0, bytes_per_s=statistics.median(point.value for point in points))


def _ranges(device: Device) -> Iterator[tuple[str, int | None, float, float]]:
    """Each level's name, capacity, and the working sets that fit into it and into no level
    before."""
    low = 0.0
    for cache in device.caches:
        smallest = max(low, _OF_CACHE * cache.capacity)
        yield cache.name, cache.capacity, smallest, _WITHIN_CACHE * cache.capacity
        low = _PAST_CACHE * cache.capacity
    yield "memory.dram", None, low, float("inf")


def _roof(name: str, value: float, spread: float | None, note: str | None) -> Roof:
    return Roof(name=name, value=value, unit="B/s", source="measured", spread=spread, note=note)


def _passes(device: Device, sizes: list[int]) -> Iterator[tuple[str, int, Workload]]:
    """Every pattern at every size, over one pool of random numbers."""
    import torch

    if not sizes:
        return
    elements = sizes[-1] // 4
    pool = _random(torch, 3 * elements, device.target)
    for size in sizes:
        count = size // 4
        # The three operands are adjacent, each offset by its own length.
        a, b, out = (pool[part * count : (part + 1) * count] for part in range(3))
        workloads: dict[str, Workload] = {
            "read": reading(a),
            "copy": partial(out.copy_, a),
            "add": partial(torch.add, a, b, out=out),
            "write": partial(out.fill_, 0.7310586),
            UPDATE: partial(a.mul_, 1.0),
        }
        for pattern, work in workloads.items():
            yield pattern, size, work


def reading(array: Any) -> Workload:
    """Read all of an array and write almost nothing."""
    import torch

    if array.is_cuda:
        return partial(torch.sum, array, dim=0, out=torch.empty((), device=array.device))
    rows = array[: len(array) // _ROW * _ROW].view(-1, _ROW)
    return partial(torch.mv, rows, torch.rand(_ROW), out=torch.empty(len(rows)))


def _random(torch: Any, elements: int, target: str) -> Any:
    """Random floats: a block of them repeated, because generating gigabytes takes seconds."""
    pool = torch.empty(elements, device=target)
    block = torch.rand(min(elements, _RANDOM_ELEMENTS), device=target)
    for start in range(0, elements, len(block)):
        part = pool[start : start + len(block)]
        part.copy_(block[: len(part)])
    return pool
