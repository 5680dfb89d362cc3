"""Runs all probes on one device and returns its `Machine`.

Bursts come first, while the device is cold; what slows the process permanently comes last.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import msgspec

from boundby.hardware import datasheet
from boundby.hardware.device import Device
from boundby.hardware.probes import gaps, host_link, matmul, memory, overhead, vector
from boundby.hardware.stopwatch import Timing, stopwatch_for
from boundby.model import Machine, Overheads, Point, Roof
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.units import size

# Reports what is being measured and the progress of the whole, in 0..1.
Progress = Callable[[str, float], None]

# Beyond this spread, the samples of a figure disagree too much to trust it.
_WIDE_SPREAD = 0.10
# Rates above a datasheet figure by more than this are not explained by rounding.
_PAST_DATASHEET = 1.02
_SUSTAINED_S = {"cuda": 1.5, "cpu": 1.0}


class _Gauge:
    """Converts ticks inside weighted stages into one rising fraction."""

    def __init__(self, progress: Progress, stages: dict[str, float]) -> None:
        self._progress = progress
        self._stages = stages
        self._total = sum(stages.values())
        self._done = 0.0
        self._name = ""
        self._ticks = 0

    def enter(self, name: str) -> None:
        self._done += self._stages.get(self._name, 0.0)
        self._name, self._ticks = name, 0
        self._report(0.0)

    def tick(self) -> None:
        self._ticks += 1
        # The number of ticks is unknown: approach the end of the stage without reaching it.
        self._report(self._ticks / (self._ticks + 10))

    def _report(self, part: float) -> None:
        weight = self._stages.get(self._name, 0.0)
        self._progress(self._name, (self._done + part * weight) / self._total)


class _Findings:
    """The results of the probes so far."""

    def __init__(self) -> None:
        self.roofs: list[Roof] = []
        self.timings: dict[str, Timing] = {}
        self.warnings: list[str] = []


def measure(device: Device, *, quick: bool, progress: Progress) -> Machine:
    """Measure every roof, curve and overhead of one device."""
    import torch

    try:
        with torch.inference_mode():
            return _measure(device, quick=quick, progress=progress)
    except torch.OutOfMemoryError:
        free, total = _memory(device)
        raise BoundbyError(
            f"{device.target} ran out of memory while measuring ({size(free)} of {size(total)} "
            "free): close other programs that use it and try again",
            exit_code=CANNOT_MEASURE,
        ) from None


def _measure(device: Device, *, quick: bool, progress: Progress) -> Machine:
    stopwatch = stopwatch_for(device.kind, device.index)
    dtypes = matmul.dtypes(device)
    gauge = _Gauge(progress, _stages(device, dtypes, quick=quick))
    findings = _Findings()
    findings.warnings += device.warnings
    curves: dict[str, list[Point]] = {}
    bursts: list[Roof] = []
    for dtype in dtypes:
        gauge.enter(f"{dtype} products")
        sweep = matmul.sweep(device, dtype, stopwatch, quick=quick, tick=gauge.tick)
        if sweep is not None:
            bursts += sweep.roofs
            curves[f"matmul.{dtype}"] = sweep.curve
    findings.roofs += bursts

    gauge.enter("memory")
    free, _ = _memory(device)
    bandwidths = memory.measure(device, stopwatch, free_bytes=free, quick=quick, tick=gauge.tick)
    findings.roofs += bandwidths.roofs
    findings.warnings += bandwidths.warnings
    curves |= bandwidths.curves

    gauge.enter("overheads")
    findings.timings |= overhead.measure(device, stopwatch, quick=quick, tick=gauge.tick)
    gauge.enter("vector units")
    for dtype in vector.DTYPES:
        chain = vector.measure(device, stopwatch, dtype, seconds=0.2 if quick else 0.5)
        findings.roofs += _vector_roof(device, dtype, chain, bursts)
        if isinstance(chain, str) and chain not in findings.warnings:
            findings.warnings.append(chain)
    if device.kind == "cuda":
        gauge.enter("host link")
        findings.roofs += host_link.measure(device, quick=quick, tick=gauge.tick)
    if not quick:
        _measure_slow(device, bursts, findings, gauge)
    return _machine(device, findings, bandwidths, curves, quick=quick)


def _measure_slow(device: Device, bursts: list[Roof], findings: _Findings, gauge: _Gauge) -> None:
    """Measure what takes seconds each, or slows the process: not part of a quick measurement."""
    stopwatch = stopwatch_for(device.kind, device.index)
    gauge.enter("sustained products")
    for burst in bursts:
        gauge.tick()
        dtype = burst.name.removeprefix("matmul.")
        sustained = matmul.sustained(
            device, dtype, stopwatch, burst, seconds=_SUSTAINED_S[device.kind]
        )
        if sustained is None:
            continue
        findings.roofs.append(sustained)
        if sustained.value > burst.value:
            # Nothing is faster than the roof; on a noisy machine the sweep may have been too slow.
            place = findings.roofs.index(burst)
            findings.roofs[place] = msgspec.structs.replace(sustained, name=burst.name)
    gauge.enter("compiled code")
    findings.timings |= _measure_optional(
        lambda: overhead.measure_compiled(device, stopwatch, findings.timings["python_add_ns"].ns),
        "the cost of compiled code was not measured",
        findings.warnings,
    )
    if device.kind == "cuda":
        gauge.enter("between kernels")
        findings.timings |= _measure_optional(
            lambda: gaps.measure(device, stopwatch),
            "the time between kernels was not measured",
            findings.warnings,
        )


def _vector_roof(device: Device, dtype: str, chain: Roof | str, bursts: list[Roof]) -> list[Roof]:
    """The roof of the vector units. On a CPU products run on them too, so it is at least that of
    products."""
    measured = [chain] if isinstance(chain, Roof) else []
    product = next((roof for roof in bursts if roof.name == f"matmul.{dtype}"), None)
    if device.kind != "cpu" or product is None:
        return measured
    if measured and measured[0].value >= product.value:
        return measured
    return [msgspec.structs.replace(product, name=f"vector.{dtype}", note=f"as {dtype} products")]


def _stages(device: Device, dtypes: tuple[str, ...], *, quick: bool) -> dict[str, float]:
    """Each stage's share of the time, as measured on an H200 and on a 2-core CPU."""
    stages = {f"{dtype} products": 3.0 for dtype in dtypes}
    stages |= {"memory": 6.0 if device.kind == "cpu" else 3.0, "overheads": 1.0}
    stages["vector units"] = 1.0
    if device.kind == "cuda":
        stages["host link"] = 1.5
    if not quick:
        stages |= {"sustained products": 2.0 * len(dtypes), "compiled code": 12.0}
    if not quick and device.kind == "cuda":
        stages["between kernels"] = 3.0
    return stages


def _measure_optional(
    probe: Callable[[], dict[str, Timing]], missing: str, warnings: list[str]
) -> dict[str, Timing]:
    """Run a probe that needs a compiler or a profiler: if it fails, the other results are kept."""
    try:
        timings = probe()
    except Exception as error:  # noqa: BLE001 - compilers and profilers fail in their own ways
        reason = str(error).strip().splitlines()
        warnings.append(f"{missing}: {reason[0] if reason else type(error).__name__}")
        return {}
    if not timings:
        warnings.append(f"{missing}: nothing was recorded")
    return timings


def _memory(device: Device) -> tuple[int, int]:
    """Free and total memory of the device."""
    if device.kind == "cpu":
        import psutil

        host = psutil.virtual_memory()
        return host.available, host.total
    import torch

    free, total = torch.cuda.mem_get_info(device.index)
    return int(free), int(total)


def _machine(
    device: Device,
    found: _Findings,
    bandwidths: memory.Bandwidths,
    curves: dict[str, list[Point]],
    *,
    quick: bool,
) -> Machine:
    chip = datasheet.find_chip(device.name, device.memory_bytes)
    roofs = [_beside_datasheet(roof, chip) for roof in found.roofs]
    warnings = found.warnings + _doubts(roofs, found.timings)
    if chip is None and device.kind != "cpu":
        warnings.append(f"{device.name} is not in the datasheet table: measured roofs alone")
    overheads = {name: timing.ns for name, timing in found.timings.items()}
    if "shortest_kernel_ns" not in overheads and "graph_kernel_ns" in overheads:
        # A kernel in a replayed graph takes hardly longer than the shortest kernel.
        overheads["shortest_kernel_ns"] = overheads["graph_kernel_ns"]
    return Machine(
        device=device.name,
        kind=device.kind,
        chip=chip.name if chip else None,
        vendor=chip.vendor if chip else None,
        driver=device.driver,
        torch=device.torch,
        threads=device.threads,
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        quick=quick,
        memory_bytes=device.memory_bytes,
        roofs=roofs,
        levels=bandwidths.levels,
        curves=curves,
        overheads=Overheads(memory_t0_ns=bandwidths.t0_ns, **overheads),
        warnings=warnings,
    )


def _beside_datasheet(roof: Roof, chip: datasheet.Chip | None) -> Roof:
    """The roof with the vendor's figure for it, or for the roof it is a variant of."""
    if chip is None:
        return roof
    kind, _, rest = roof.name.partition(".")
    figure = chip.figures.get(f"{kind}.{rest.split('.')[0]}")
    if figure is None:
        return roof
    return msgspec.structs.replace(roof, datasheet=figure.value)


def _doubts(roofs: list[Roof], timings: dict[str, Timing]) -> list[str]:
    """One line for every measured figure that should not be trusted."""
    doubts = []
    spreads = [(roof.name, roof.spread or 0.0) for roof in roofs]
    spreads += [(name.removesuffix("_ns"), timing.spread) for name, timing in timings.items()]
    wide = [f"{name} {spread:.0%}" for name, spread in spreads if spread > _WIDE_SPREAD]
    if wide:
        doubts.append(
            f"wide spread between samples ({', '.join(wide)}): is something else running here?"
        )
    doubts += [
        f"{roof.name} is {roof.value / roof.datasheet:.0%} of its datasheet figure: "
        "the table or the clock is off"
        for roof in roofs
        if roof.datasheet and roof.value > _PAST_DATASHEET * roof.datasheet
    ]
    return doubts
