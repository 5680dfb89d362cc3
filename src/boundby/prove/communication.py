"""Calls of a module that is replicated over several processes, without talking to the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

_SYNCS = ("require_backward_grad_sync", "require_forward_param_sync")


def is_sharded(torch: Any, module: Any) -> bool:
    """Whether a call needs the other processes: each has a part of the parameters."""
    if not _is_distributed(torch):
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    kinds = (FSDPModule, FullyShardedDataParallel)
    return any(isinstance(part, kinds) for part in module.modules()) or any(
        hasattr(parameter, "placements") for parameter in module.parameters()
    )


@contextlib.contextmanager
def local_calls(torch: Any, modules: Sequence[Any]) -> Iterator[None]:
    """Gradients and buffers of `DistributedDataParallel` stay those of this process."""
    if not _is_distributed(torch):
        yield
        return
    replicated = [
        part
        for module in modules
        for part in module.modules()
        if isinstance(part, torch.nn.parallel.DistributedDataParallel)
    ]
    before = [tuple(getattr(part, name) for name in _SYNCS) for part in replicated]
    try:
        for part in replicated:
            for name in _SYNCS:
                setattr(part, name, False)
        yield
    finally:
        for part, values in zip(replicated, before, strict=True):
            for name, value in zip(_SYNCS, values, strict=True):
                setattr(part, name, value)


def _is_distributed(torch: Any) -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())
