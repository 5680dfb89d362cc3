"""The link between host and device: pinned and pageable memory, both directions."""

from __future__ import annotations

from collections.abc import Callable

from boundby.model import Roof
from boundby.roofs.device import Device
from boundby.roofs.stopwatch import Timing, time_host

_BYTES = 256 * 1024**2


def measure(device: Device, *, quick: bool, tick: Callable[[], None]) -> list[Roof]:
    """Rates as a script sees them: from the call to the copy's end."""
    import torch

    size = _BYTES // 8 if quick else _BYTES
    there = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device.target)
    pageable = torch.randint(0, 256, (size,), dtype=torch.uint8)
    pinned = pageable.pin_memory()
    copies = {
        "host_link.h2d": lambda: there.copy_(pinned, non_blocking=True),
        "host_link.d2h": lambda: pinned.copy_(there, non_blocking=True),
        "host_link.h2d.pageable": lambda: there.copy_(pageable),
        "host_link.d2h.pageable": lambda: pageable.copy_(there),
    }
    roofs = []
    for name, copy in copies.items():
        tick()

        def finish(copy: Callable[[], object] = copy) -> None:
            copy()
            torch.cuda.synchronize(device.index)

        timing: Timing = time_host(finish, calls=1, rounds=3 if quick else 9)
        roofs.append(
            Roof(
                name=name,
                value=size / timing.ns * 1e9,
                unit="B/s",
                source="measured",
                spread=timing.spread,
            )
        )
    return roofs
