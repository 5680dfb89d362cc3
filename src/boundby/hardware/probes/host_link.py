"""The link between host and device: pinned and pageable memory, both directions."""

from __future__ import annotations

from collections.abc import Callable

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import Workload, time_host_in_turns
from boundby.model import Roof

_BYTES = 256 * 1024**2  # much larger than the latency of a copy matters


def measure(device: Device, *, quick: bool, tick: Callable[[], None]) -> list[Roof]:
    """Rates as a script sees them: from the call to the end of the copy."""
    import torch

    size = _BYTES // 8 if quick else _BYTES
    on_device = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device.target)
    pageable = torch.randint(0, 256, (size,), dtype=torch.uint8)
    pinned = pageable.pin_memory()
    copies = {
        "host_link.h2d": lambda: on_device.copy_(pinned, non_blocking=True),
        "host_link.d2h": lambda: pinned.copy_(on_device, non_blocking=True),
        "host_link.h2d.pageable": lambda: on_device.copy_(pageable),
        "host_link.d2h.pageable": lambda: pageable.copy_(on_device),
    }

    def finished(copy: Workload) -> Workload:
        def run() -> None:
            copy()
            torch.cuda.synchronize(device.index)

        return run

    workloads = [(finished(copy), 1) for copy in copies.values()]
    timings = time_host_in_turns(workloads, rounds=3 if quick else 15)
    tick()
    return [
        Roof(
            name=name,
            value=size / timing.ns * 1e9,
            unit="B/s",
            source="measured",
            spread=timing.spread,
        )
        for name, timing in zip(copies, timings, strict=True)
    ]
