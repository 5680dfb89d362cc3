"""Counters around the clean steps: the garbage collector, the scheduler, the compiler.

Everything is read at step ends, or by the collector's own callback: inside a step there are only
two clock readings per collection. Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from boundby.capture.host.compiler import (
    compiled_again,
    compiled_ns,
    gave_up,
    graph_break_lines,
    graph_breaks,
)
from boundby.capture.host.page_faults import faults_and_system_ns, resident
from boundby.model.host_counters import HostCounters, ThreadTime
from boundby.runtime.cores import cores_at_hand

_SCHEDULER = Path("/proc/self/task")
_CORES = Path("/proc/stat")
# In its first line: user, nice, system, irq, softirq and steal; not idle and waiting for disks.
_BUSY = (0, 1, 2, 5, 6, 7)
_STOLEN = 7  # definition: the position of steal in that line
# After a process's name: user and system time, of itself and of its children that ended.
_PROCESSES = Path("/proc")
_RAN = (11, 12, 13, 14)  # definition: their positions after the name
_MOST_PLACES = 5  # display limit
# Page faults are read at step ends at least this far apart: the call takes 1 to 60 us. Steps
# between two readings share their pages.
_PAGES_APART_NS = 10_000_000


@dataclass(slots=True)
class _Reading:
    """Counters at one moment."""

    at_ns: int
    threads: dict[int, ThreadTime] = field(default_factory=dict)
    cores: _Cores | None = None
    workers_ns: float | None = None
    allocations: int | None = None
    faults: int = 0
    system_ns: float = 0.0
    resident: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cores:
    """All cores together, since the system started: their busy time, and the part of it given to
    other virtual machines."""

    busy_ns: float
    stolen_ns: float


class HostCounterSampler:
    """Reads counters during the clean window: `begin`, `step` at each step's end, `end`."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._since: int | None = None
        self._place = ("", 0)
        self._places: dict[tuple[str, int], int] = {}
        self._collected = 0
        self._compiled = 0.0
        self._main = 0
        self._before: _Reading | None = None
        self._after: _Reading | None = None
        self._waited = 0
        self._loader_workers = 0
        self._data_ns: list[float] = []
        self._collector_ns: list[float] = []
        self._compiler_ns: list[float] = []
        self._step_pages: list[int] = []
        self._pages = 0
        self._pages_read_at = 0
        self._steps_since = 0  # page faults were read

    def begin(self) -> None:
        self._data_ns, self._waited = [], 0
        self._collector_ns, self._compiler_ns, self._places = [], [], {}
        self._main = threading.get_native_id()
        self._before, self._after = self._read(), None
        # From there on, so that the steps' pages add up to no more than the window's.
        self._step_pages, self._pages = [], self._before.faults
        self._pages_read_at, self._steps_since = self._clock(), 0
        self._collected, self._compiled = 0, compiled_ns()
        if self._collect not in gc.callbacks:
            gc.callbacks.append(self._collect)

    def waited(self, ns: int, workers: int = 0) -> None:
        """The time waited for a batch from this many processes: inside the step, or before its
        first call."""
        self._waited += ns
        self._loader_workers = max(self._loader_workers, workers)

    def step(self) -> None:
        self._data_ns.append(float(self._waited))
        self._waited = 0
        self._collector_ns.append(float(self._collected))
        self._collected = 0
        self._steps_since += 1
        if self._clock() - self._pages_read_at >= _PAGES_APART_NS:
            self._read_pages()
        compiled = compiled_ns()
        # A script that resets the compiler starts counting at zero.
        self._compiler_ns.append(max(0.0, compiled - self._compiled))
        self._compiled = compiled

    def end(self) -> None:
        if self._collect in gc.callbacks:
            gc.callbacks.remove(self._collect)
        if self._after is None:
            self._read_pages()
            self._after = self._read()

    def _read_pages(self) -> None:
        """Divide the page faults since the last reading among the steps since then."""
        steps, self._steps_since = self._steps_since, 0
        if not steps:
            return
        pages, _ = faults_and_system_ns()
        each, rest = divmod(pages - self._pages, steps)
        self._step_pages += [each + (at < rest) for at in range(steps)]
        self._pages, self._pages_read_at = pages, self._clock()

    def host_counters(
        self,
        steps_ns: tuple[float, ...],
        peak_bytes: int | None,
        fresh_page_ns: float = 0.0,
    ) -> HostCounters:
        """The counters; without a clean window, only the compiler's own reports."""
        main = busiest = ours = others = workers = stolen = allocations = None
        wall, fresh_pages, system = 0.0, 0, 0.0
        kept_pages: int | None = None
        if self._before is not None and self._after is not None:
            wall = float(self._after.at_ns - self._before.at_ns)
            spent = _between(self._before.threads, self._after.threads)
            ours = sum(thread.ran_ns for thread in spent.values()) if spent else None
            before, after = self._before.cores, self._after.cores
            if before is not None and after is not None:
                if ours is not None:
                    others = max(0.0, after.busy_ns - before.busy_ns - ours)
                if after.busy_ns > before.busy_ns:
                    taken = after.stolen_ns - before.stolen_ns
                    stolen = taken / (after.busy_ns - before.busy_ns)
            if self._before.workers_ns is not None and self._after.workers_ns is not None:
                workers = max(0.0, self._after.workers_ns - self._before.workers_ns)
            if self._before.allocations is not None and self._after.allocations is not None:
                allocations = max(0, self._after.allocations - self._before.allocations)
            fresh_pages = self._after.faults - self._before.faults
            if self._before.resident is not None and self._after.resident is not None:
                kept_pages = max(0, self._after.resident - self._before.resident)
            system = self._after.system_ns - self._before.system_ns
            main = spent.pop(self._main, None)
            busiest = max(spent.values(), key=lambda t: t.ran_ns + t.delayed_ns, default=None)
        return HostCounters(
            steps_ns=steps_ns,
            data_ns=tuple(self._data_ns),
            loader_workers=self._loader_workers,
            collector_ns=tuple(self._collector_ns),
            collected_at=_relative(self._places),
            compiler_ns=tuple(self._compiler_ns),
            wall_ns=wall,
            main=main,
            busiest=busiest,
            ours_ns=ours,
            cores=cores_at_hand(),
            others_ns=others,
            workers_ns=workers,
            steal_share=stolen,
            graph_breaks=graph_breaks(),
            graph_break_lines=graph_break_lines(),
            compiled_again=compiled_again(),
            gave_up_compiling=gave_up(),
            peak_bytes=peak_bytes,
            allocations=allocations,
            fresh_pages=fresh_pages,
            step_pages=tuple(self._step_pages),
            kept_pages=kept_pages,
            system_ns=system,
            fresh_page_ns=fresh_page_ns,
        )

    def _collect(self, phase: str, _: object) -> None:
        if phase == "start":
            # Work of a C++ thread may start it, with no Python around it.
            frame = sys._getframe().f_back
            self._place = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
            self._since = self._clock()
        elif self._since is not None:
            took = self._clock() - self._since
            self._collected += took
            self._since = None
            self._places[self._place] = self._places.get(self._place, 0) + took

    def _read(self) -> _Reading:
        return _Reading(
            self._clock(),
            _thread_times(),
            _cores(),
            _workers_ns(),
            _allocations(),
            *faults_and_system_ns(),
            resident(),
        )


def _relative(places: dict[tuple[str, int], int]) -> tuple[tuple[str, int], ...]:
    """The longest first; files relative to where they are imported, as profilers name them."""
    roots = sorted((f"{root}/" for root in sys.path if root), key=len, reverse=True)

    def trimmed(file: str) -> str:
        root = next((root for root in roots if file.startswith(root)), "")
        return file[len(root) :]

    ranked = sorted(places, key=lambda place: -places[place])[:_MOST_PLACES]
    return tuple((trimmed(file), line) for file, line in ranked)


def _thread_times() -> dict[int, ThreadTime]:
    """The run time of each thread and how long it waited for a core; empty except on Linux."""
    found: dict[int, ThreadTime] = {}
    try:
        threads = [place.name for place in _SCHEDULER.iterdir()]
    except OSError:
        return found
    for thread in threads:
        time_of = thread_time(int(thread))
        if time_of is not None:  # it may have ended meanwhile
            found[int(thread)] = time_of
    return found


def thread_time(thread: int) -> ThreadTime | None:
    """The run time and waiting time of a thread since it began; None if the operating system does
    not count them."""
    try:
        ran, delayed, *_ = (_SCHEDULER / str(thread) / "schedstat").read_text().split()
        return ThreadTime(ran_ns=float(ran), delayed_ns=float(delayed))
    except (OSError, ValueError):
        return None


def _cores() -> _Cores | None:
    """The operating system's counters of all cores together."""
    try:
        _, *words = _CORES.read_text().splitlines()[0].split()
        # The two after these are counted among the first.
        ticks = [int(word) for word in words[: _STOLEN + 1]]
        each = 1e9 / os.sysconf("SC_CLK_TCK")
        busy = sum(ticks[at] for at in _BUSY)
        return _Cores(busy_ns=each * busy, stolen_ns=each * ticks[_STOLEN])
    except (OSError, ValueError, IndexError):  # not Linux, or a container that hides it
        return None


def _workers_ns() -> float | None:
    """CPU time of the processes that this one has started, also of those that have ended."""
    try:
        lists = [(thread / "children").read_text() for thread in _SCHEDULER.iterdir()]
    except OSError:  # not Linux, or a kernel without such lists
        return None
    ended = os.times()
    total = (ended.children_user + ended.children_system) * 1e9
    for child in " ".join(lists).split():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # Its name is in parentheses and may contain any character.
            fields = (_PROCESSES / child / "stat").read_text().rpartition(")")[2].split()
            ticks = sum(int(fields[at]) for at in _RAN)
            total += ticks * 1e9 / os.sysconf("SC_CLK_TCK")
    return total


def _allocations() -> int | None:
    """How often torch has allocated and freed device memory; None without a device."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats()
    # Another allocator may be active, which counts neither.
    counts = [stats.get(name) for name in ("num_device_alloc", "num_device_free")]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None


def _between(before: dict[int, ThreadTime], after: dict[int, ThreadTime]) -> dict[int, ThreadTime]:
    none = ThreadTime(ran_ns=0.0, delayed_ns=0.0)
    return {
        thread: ThreadTime(
            ran_ns=now.ran_ns - before.get(thread, none).ran_ns,
            delayed_ns=now.delayed_ns - before.get(thread, none).delayed_ns,
        )
        for thread, now in after.items()
    }
