"""Counters of the operating system around the clean steps, which no profile shows."""

from __future__ import annotations

from boundby.model.record import Record


class ThreadTime(Record, frozen=True, kw_only=True):
    """A thread during the clean steps: its time on a CPU core, and its time waiting for one."""

    ran_ns: float
    delayed_ns: float


class CompiledAgain(Record, frozen=True, kw_only=True):
    """A function of the user's that was compiled several times; the reason for the last time."""

    where: str
    times: int
    reason: str = ""


class HostCounters(Record, frozen=True, kw_only=True):
    """Facts about the clean steps beyond their time; each list has an entry per step.

    `graph_breaks` are the compiler's reasons, `graph_break_lines` those with a line of the user's
    and the line; `gave_up_compiling`: a function of the user's runs uncompiled.

    `data_ns` is how long the script waited for a loader's batches, `loader_workers` the number of
    processes that make them (of the loader with most). `collected_at` are the files and lines at
    which collections began, the longest first. `main` is the thread that runs the steps, `busiest`
    the other thread with the most runnable time, `ours_ns` the CPU time of all threads
    together on the `cores` that the script may use, `others_ns` that of other processes on all
    cores, `workers_ns` the part of it in processes that the script has started, `steal_share` the
    part of the requested core time that other virtual machines took, `allocations` how often torch
    allocated or freed device memory, `fresh_pages` the number of page faults, `kept_pages` the
    growth of the process in pages, `system_ns` the operating system's time for all threads; all of
    these are over the whole window of `wall_ns`, and None if unknown. `step_pages` are the page
    faults of each step, `fresh_page_ns` the cost to write to a fresh page, if measured.
    """

    steps_ns: tuple[float, ...] = ()
    data_ns: tuple[float, ...] = ()
    loader_workers: int = 0
    collector_ns: tuple[float, ...] = ()
    collected_at: tuple[tuple[str, int], ...] = ()
    compiler_ns: tuple[float, ...] = ()
    wall_ns: float = 0.0
    main: ThreadTime | None = None
    busiest: ThreadTime | None = None
    ours_ns: float | None = None
    cores: int | None = None
    others_ns: float | None = None
    workers_ns: float | None = None
    steal_share: float | None = None
    graph_breaks: tuple[str, ...] = ()
    graph_break_lines: tuple[tuple[str, str], ...] = ()
    compiled_again: tuple[CompiledAgain, ...] = ()
    gave_up_compiling: bool = False
    peak_bytes: int | None = None
    allocations: int | None = None
    fresh_pages: int = 0
    step_pages: tuple[int, ...] = ()
    kept_pages: int | None = None
    system_ns: float = 0.0
    fresh_page_ns: float = 0.0

    @property
    def data_share(self) -> float | None:
        """The share of the clean steps' time spent waiting for batches; None without batches."""
        waited, total = sum(self.data_ns), sum(self.steps_ns)
        return min(1.0, waited / total) if waited and total else None

    @property
    def cpu_wait_share(self) -> float:
        """The share of the clean steps' time in which the script was runnable but had no core."""
        if self.main is None or not self.wall_ns:
            return 0.0
        return min(1.0, self.main.delayed_ns / self.wall_ns)

    @property
    def sleep_share(self) -> float:
        """The share of the clean steps' time in which the script needed no core."""
        if self.main is None or not self.wall_ns:
            return 0.0
        return max(0.0, 1 - (self.main.ran_ns + self.main.delayed_ns) / self.wall_ns)

    @property
    def loading_share(self) -> float:
        """The share of the script's runnable time spent making batches itself."""
        awake = 1 - self.sleep_share
        return max(0.0, (self.data_share or 0.0) - self.sleep_share) / awake if awake else 0.0

    @property
    def worker_cpu_share(self) -> float:
        """The share of the clean steps' time in which the script's own processes used its core."""
        if not self.workers_ns or not self.wall_ns:
            return 0.0
        return min(self.cpu_wait_share, self.workers_ns / self.wall_ns)
