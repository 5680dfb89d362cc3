"""Memory bandwidth over working-set size, and from it one roof per level of the hierarchy.

A roof is the slope of t = t0 + bytes / bandwidth over the sizes that live in a level: the plain
rate of small copies is low only because it contains t0. Of the four access patterns the fastest
gives the roof, as nothing may exceed it; each pattern's own slope is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from boundby.model import MemoryLevel, Point, Record, Roof
from boundby.roofs.device import Device
from boundby.roofs.stopwatch import Stopwatch, Timing, Work

_MIB = 1024**2
_RANDOM_ELEMENTS = 4 * _MIB
# Bytes moved per byte of one operand.
PATTERNS = {"read": 1, "write": 1, "copy": 2, "add": 3}
_SMALLEST = 64 * 1024
_LARGEST = {"cuda": 4096 * _MIB, "cpu": 1024 * _MIB}
_QUICK_LARGEST = {"cuda": 1024 * _MIB, "cpu": 256 * _MIB}
# A set this many times the cache finds nothing of itself there when it comes round again.
_PAST_CACHE = 2.0
_WITHIN_CACHE = 0.5
# Smaller sets than this part of a level take hardly longer than t0: they say nothing of its slope.
_OF_CACHE = 1 / 16
_FINE_UP_TO = 256 * _MIB
_FEWEST_POINTS = 3


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
        if not quick and halfway <= min(largest, _FINE_UP_TO):
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
    curves: dict[str, list[Point]] = {pattern: [] for pattern in PATTERNS}
    spreads: dict[tuple[str, float], Timing] = {}
    for pattern, size, work in _passes(device, sizes):
        tick()
        timing = stopwatch.time(work, seconds=0.01 if quick else 0.03)
        touched = float(PATTERNS[pattern] * size)
        spreads[pattern, touched] = timing
        curves[pattern].append(
            Point(size=touched, value=touched / timing.ns * 1e9, ns=timing.ns, label=pattern)
        )
    return _roofs(device, curves, spreads)


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


def _roofs(
    device: Device,
    curves: dict[str, list[Point]],
    timings: dict[tuple[str, float], Timing],
) -> Bandwidths:
    roofs: list[Roof] = []
    levels: list[MemoryLevel] = []
    warnings: list[str] = []
    t0: float | None = None
    for name, capacity, low, high in _ranges(device):
        slopes: dict[str, Line] = {}
        for pattern, curve in curves.items():
            points = [point for point in curve if low <= point.size <= high]
            if len(points) >= _FEWEST_POINTS or (points and capacity is None):
                slopes[pattern] = fit(points)
        if not slopes:
            warnings.append(f"{name}: too little memory is free to measure it")
            continue
        best = max(slopes, key=lambda pattern: slopes[pattern].bytes_per_s)
        spread = max(
            timings[best, point.size].spread for point in curves[best] if low <= point.size <= high
        )
        roofs.append(_roof(name, slopes[best].bytes_per_s, spread, best))
        roofs += [
            _roof(f"{name}.{pattern}", line.bytes_per_s, None, None)
            for pattern, line in slopes.items()
        ]
        levels.append(MemoryLevel(roof=name, capacity=capacity))
        if t0 is None and "copy" in slopes:
            t0 = slopes["copy"].t0_ns
    named = {f"memory.{pattern}": curve for pattern, curve in curves.items()}
    return Bandwidths(roofs=roofs, levels=levels, curves=named, t0_ns=t0, warnings=warnings)


def _ranges(device: Device) -> Iterator[tuple[str, int | None, float, float]]:
    """Each level's name, capacity, and the working sets that live in it and in none before."""
    low = 0.0
    for cache in device.caches:
        smallest = max(low, _OF_CACHE * cache.capacity)
        yield cache.name, cache.capacity, smallest, _WITHIN_CACHE * cache.capacity
        low = _PAST_CACHE * cache.capacity
    yield "memory.dram", None, low, float("inf")


def _roof(name: str, value: float, spread: float | None, note: str | None) -> Roof:
    return Roof(name=name, value=value, unit="B/s", source="measured", spread=spread, note=note)


def _passes(device: Device, sizes: list[int]) -> Iterator[tuple[str, int, Work]]:
    """Every pattern at every size, over one pool of random numbers."""
    import torch

    if not sizes:
        return
    elements = sizes[-1] // 4
    pool = _random(torch, 3 * elements, device.target)
    total = torch.empty((), device=device.target)
    for size in sizes:
        count = size // 4
        # The three operands lie next to each other, as far apart as they are long.
        a, b, out = (pool[part * count : (part + 1) * count] for part in range(3))
        works: dict[str, Work] = {
            "read": partial(torch.sum, a, dim=0, out=total),
            "copy": partial(out.copy_, a),
            "add": partial(torch.add, a, b, out=out),
            "write": partial(out.fill_, 0.7310586),
        }
        for pattern, work in works.items():
            yield pattern, size, work


def _random(torch: Any, elements: int, target: str) -> Any:
    """Random floats: a block of them repeated, since generating gigabytes takes seconds."""
    pool = torch.empty(elements, device=target)
    block = torch.rand(min(elements, _RANDOM_ELEMENTS), device=target)
    for start in range(0, elements, len(block)):
        part = pool[start : start + len(block)]
        part.copy_(block[: len(part)])
    return pool
