"""Measures saved figures again, to distinguish a changed machine from a law that does not hold."""

from __future__ import annotations

import msgspec

from boundby.hardware.probes import host_link, matmul, overhead, vector
from boundby.hardware.probes.memory import reading
from boundby.hardware.stopwatch import Workload
from boundby.lab.bench import Bench
from boundby.lab.rates import streamed_bytes
from boundby.model import Machine, Roof

# Name of a saved figure -> its saved and its present value.
Changes = dict[str, tuple[float, float]]


def remeasure(bench: Bench, names: list[str]) -> tuple[Machine, Changes]:
    """The machine with these figures measured again, and how each of them changed."""
    present: dict[str, float] = {}
    families = {name.split(".")[0] for name in names}
    for roof in _roofs(bench, names, families):
        present[roof.name] = roof.value
    saved = bench.machine
    roofs = [
        msgspec.structs.replace(roof, value=present[roof.name]) if roof.name in present else roof
        for roof in saved.roofs
    ]
    changes = {
        roof.name: (roof.value, present[roof.name])
        for roof in saved.roofs
        if roof.name in present and roof.name in names
    }
    overheads = saved.overheads
    wanted = [name for name in names if hasattr(overheads, name)]
    if wanted:
        timings = overhead.measure(bench.device, bench.stopwatch, quick=True, tick=bench.tick)
        for name in wanted:
            before = getattr(overheads, name)
            if before and name in timings:
                changes[name] = (before, timings[name].ns)
        overheads = msgspec.structs.replace(
            overheads, **{name: after for name, (_, after) in changes.items() if name in wanted}
        )
    return msgspec.structs.replace(saved, roofs=roofs, overheads=overheads), changes


def _roofs(bench: Bench, names: list[str], families: set[str]) -> list[Roof]:
    import torch

    device, stopwatch = bench.device, bench.stopwatch
    roofs: list[Roof] = []
    with torch.inference_mode():
        if "memory" in families:
            roofs += _memory(bench)
        for dtype in vector.DTYPES:
            if f"vector.{dtype}" in names:
                chain = vector.measure(device, stopwatch, dtype, seconds=0.3)
                roofs += [chain] if isinstance(chain, Roof) else []
        if "host_link" in families and bench.cuda:
            roofs += host_link.measure(device, quick=True, tick=bench.tick)
        for name in names:
            saved = bench.machine.roof(name)
            if name.startswith("matmul.") and saved is not None:
                dtype = name.split(".")[1]
                sustained = matmul.sustained(device, dtype, stopwatch, saved, seconds=0.5)
                if sustained is not None:
                    roofs += [sustained, msgspec.structs.replace(sustained, name=f"matmul.{dtype}")]
    return roofs


def _memory(bench: Bench) -> list[Roof]:
    """Each access pattern over an array larger than all caches, and the best of them."""
    import torch

    elements = streamed_bytes(bench.machine, quick=bench.quick) // 8
    a, b, out = (torch.rand(elements, device=bench.target) for _ in range(3))
    workloads: dict[str, tuple[int, Workload]] = {
        "read": (4, reading(a)),
        "write": (4, lambda: out.fill_(0.5)),
        "copy": (8, lambda: out.copy_(a)),
        "add": (12, lambda: torch.add(a, b, out=out)),
    }
    times = bench.fastest([work for _, work in workloads.values()], seconds=0.2)
    rates = {
        pattern: size * elements / time.value * 1e9
        for (pattern, (size, _)), time in zip(workloads.items(), times, strict=True)
    }
    named = {f"memory.dram.{pattern}": rate for pattern, rate in rates.items()}
    named["memory.dram"] = max(rates.values())
    return [
        Roof(name=name, value=rate, unit="B/s", source="measured") for name, rate in named.items()
    ]
