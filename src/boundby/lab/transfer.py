"""Transfers: every link between storage and the arithmetic units has its own bandwidth.

The claim
    Data moves from disk to host, from host to device, from device memory to the cores, and each
    link is far slower than the next. Copies from pinned memory can overlap with compute.

The law
    The time of a transfer is bytes over bandwidth. A copy from pinned memory is done by a copy
    engine and can overlap with compute, so both together take as long as the longer one. A copy
    from pageable memory blocks the host until it is done.

The experiment
    The same bytes read from a file that is no longer in the page cache, copied from pageable and
    from pinned memory, and copied within device memory; then a product together with the first
    link. On a CPU the first link is the disk, read by a thread beside the product.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from boundby.hardware.probes.matmul import product
from boundby.hardware.stopwatch import Timing, Workload
from boundby.lab.bench import Bench, spread
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import product_dtype, stream_rate
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars, Interval

_SIZE = 256 * 1024**2  # bytes
_LINKS = {
    "pageable": ("host_link.h2d.pageable", "host to device, pageable memory"),
    "pinned": ("host_link.h2d", "host to device, pinned memory"),
}
_HIDING_ROUNDS = 15  # the median of them counts
_SIDE = {"cuda": 8192, "cpu": 1024}


def predict(machine: Machine, _: Probe) -> Predictions:
    predictions = {}
    for name, (roof, what) in _LINKS.items():
        rate = machine.rate(roof)
        if rate:
            predictions[name] = around(rate, what, "B/s", rests_on=(roof,))
    memory = stream_rate(machine, "copy")
    predictions["memory"] = around(
        memory,
        "within device memory",
        "B/s",
        rests_on=("memory.dram.copy", "memory.dram"),
    )
    predictions["order"] = between(1.5, 10.0, 1e6, "device memory over the disk", "x", rests_on=())
    if machine.kind == "cuda":
        predictions["hidden"] = between(
            0.75, 1.0, 1.1, "share of a pinned copy hidden behind a product", "share"
        )
        predictions["exposed"] = between(
            -0.1, 0.0, 0.3, "share of a pageable copy hidden behind a product", "share"
        )
    return predictions


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    size = _SIZE // (8 if bench.quick else 1)
    on_host = torch.randint(0, 256, (size,), dtype=torch.uint8)
    measured = Measured()
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        path = Path(folder) / "numbers"
        _write(path, on_host.numpy())
        disk = _time_reads(bench, path, size)
        if not bench.cuda:
            _hide_disk(bench, path, size, measured)
    measured.add("disk", "disk to host", "B/s", disk.inverse(1e9 * size))
    on_device = torch.empty(_SIZE * 2, dtype=torch.uint8, device=bench.target)
    other = torch.empty_like(on_device)
    copy = bench.time(lambda: other.copy_(on_device))
    measured.found["memory"] = copy.inverse(2e9 * len(on_device))
    if bench.cuda:
        pinned = on_host.pin_memory()
        workloads = {
            "pageable": lambda: on_device[:size].copy_(on_host),
            "pinned": lambda: on_device[:size].copy_(pinned, non_blocking=True),
        }
        for name, work in workloads.items():
            measured.found[name] = bench.wall(work).inverse(1e9 * size)
        measured.found["hidden"] = _hide_copy(bench, on_device, pinned)
        measured.found["exposed"] = _hide_copy(bench, on_device, on_host)
    measured.found["order"] = measured.found["memory"].over(measured.also["disk"])
    _conclude(measured)
    return measured


def _conclude(measured: Measured) -> None:
    rates = {"disk to host": measured.also["disk"].value}
    rates |= {
        _LINKS[name][1]: measured.found[name].value for name in _LINKS if name in measured.found
    }
    rates["within device memory"] = measured.found["memory"].value
    measured.summary = " < ".join(f"{name} {units.rate(r, 'B/s')}" for name, r in rates.items())
    measured.reasons["order"] = (
        "the file came from memory: its file system caches it, or the host of this virtual "
        "machine does"
    )
    bars = [Bar(name=name, value=value) for name, value in rates.items()]
    axis = Axis(name="bandwidth", unit="B/s")
    measured.plots.append(Bars(title="The links", axis=axis, bars=bars))


def _write(path: Path, numbers: Any) -> None:
    with path.open("wb") as file:
        file.write(numbers.tobytes())
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path, buffer: bytearray) -> None:
    """Read the whole file from the disk: it is removed from the page cache first."""
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        view = memoryview(buffer)
        while count := file.readinto(view):
            view = view[count:]


def _time_reads(bench: Bench, path: Path, size: int) -> Interval:
    buffer = bytearray(size)
    samples = []
    for _ in range(4):
        bench.pause()
        began = time.perf_counter_ns()
        _read(path, buffer)
        samples.append(float(time.perf_counter_ns() - began))
    return spread(Timing.of(samples[1:]))


def _busy(bench: Bench, wanted_ns: float) -> tuple[Workload, float]:
    """Products that keep the device busy for about as long, and how long they take."""
    side = _SIDE[bench.device.kind]
    one = product(bench.device, product_dtype(bench.machine), (side, side, side))
    assert one is not None
    once = bench.time(one, seconds=0.1).value
    count = max(1, round(wanted_ns / once))

    def products() -> None:
        for _ in range(count):
            one()

    return products, count * once


def _hide_copy(bench: Bench, on_device: Any, source: Any) -> Interval:
    """The share of a copy's time that disappears when a product of equal length runs beside it."""
    import torch

    side_stream = torch.cuda.Stream(bench.device.index)
    part = on_device[: len(source)]

    def copy() -> None:
        with torch.cuda.stream(side_stream):
            part.copy_(source, non_blocking=True)

    compute, _ = _busy(bench, bench.wall(copy, rounds=3).value)

    def together() -> None:
        # The copy first: the host may have to wait for it.
        copy()
        compute()

    workloads = {"copy": copy, "compute": compute, "together": together}
    took = bench.compare(workloads, rounds=_HIDING_ROUNDS)
    apart = took["copy"].value + took["compute"].value
    shorter = min(took["copy"].value, took["compute"].value)
    low, value, high = (
        (apart - ns) / shorter
        for ns in (took["together"].high, took["together"].value, took["together"].low)
    )
    return Interval(low=low, value=value, high=high)


def _hide_disk(bench: Bench, path: Path, size: int, measured: Measured) -> None:
    buffer = bytearray(size)
    read_ns = _time_reads(bench, path, size).value
    compute, _ = _busy(bench, read_ns)
    samples: dict[str, list[float]] = {"compute": [], "together": []}
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            began = time.perf_counter_ns()
            compute()
            samples["compute"].append(time.perf_counter_ns() - began)
            began = time.perf_counter_ns()
            reading = pool.submit(_read, path, buffer)
            compute()
            reading.result()
            samples["together"].append(time.perf_counter_ns() - began)
    alone, both = (Timing.of(samples[name]).ns for name in ("compute", "together"))
    hidden = (alone + read_ns - both) / min(alone, read_ns)
    measured.add("hidden", "share of a file's reading hidden behind a product", "share", hidden)


EXPERIMENT = Experiment(
    name="transfer", document=__doc__ or "", predict=predict, measure=measure, seconds=12
)
