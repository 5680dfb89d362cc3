"""Threads of a CPU: how many, and whether they spin or sleep while they wait."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    def arrived(torch: Any, swaps: PatchSet) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        swaps.later(partial(torch.set_num_threads, before))
        if before != count:
            note(f"{count} threads instead of {before}")

    with when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def no_more_threads_than_cores() -> Iterator[None]:
    def arrived(torch: Any, swaps: PatchSet) -> None:
        before, cores = torch.get_num_threads(), usable_cores()
        if before <= cores:
            return
        torch.set_num_threads(cores)
        swaps.later(partial(torch.set_num_threads, before))
        note(f"{cores} threads instead of {before}")

    with when_torch_arrives(arrived):
        yield


def usable_cores() -> int:
    """How many cores the process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


# One line per OpenMP runtime: GNU's, LLVM's and Intel's.
SLEEPING_THREADS = Fix(
    name="sleeping-threads",
    change="OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 KMP_BLOCKTIME=0 python SCRIPT",
    environment={"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"},
    devices=("cpu",),
)
ONE_THREAD = Fix(
    name="one-thread",
    change="torch.set_num_threads(1)",
    apply=partial(threads, 1),
    devices=("cpu",),
)
AS_MANY_AS_CORES = Fix(
    name="as-many-threads-as-cores",
    change="torch.set_num_threads(CORES)  # as many as the process may use",
    apply=no_more_threads_than_cores,
    devices=("cpu",),
)
