"""What the operating system counted around the clean steps, and what no profile shows."""

from __future__ import annotations

from boundby.model.record import Record


class ThreadTime(Record, frozen=True, kw_only=True):
    """A thread during the clean steps: on a core, and ready to run but without one."""

    ran_ns: float
    delayed_ns: float


class CompiledAgain(Record, frozen=True, kw_only=True):
    """A function of the user's that was compiled several times, and why the last time."""

    where: str
    times: int
    reason: str = ""


class HostCounters(Record, frozen=True, kw_only=True):
    """What is known of the clean steps beyond their time; each list has an entry a step.

    `graph_breaks` are the compiler's reasons, `graph_break_lines` those with a line of the user's
    and the line; `gave_up_compiling`: a function of the user's runs uncompiled.

    `data_ns` is how long the script waited for a loader's batches, `loader_workers` how many
    processes make them (of the loader that has most). `collected_at` are the files
    and lines at which collections began, the longest first. `main` is the thread that takes the
    steps, `busiest` the one of the others that wanted a core most, `ours_ns` what all threads
    together had of the `cores` that the script may use, `others_ns` what other processes had of
    all of them, `workers_ns` those among them that the script has started, `steal_share` what
    other virtual machines took of the core time that this one asked for, `allocations` how often
    torch asked the device for memory or gave it back, `fresh_pages` how many the system handed out,
    `kept_pages` how many more of them there are at the end, `system_ns` what the system did for all
    threads; they are over the whole window of `wall_ns`, and None where nobody tells. `step_pages`
    are those that each step was handed, `fresh_page_ns` what it costs to write to one, where that
    was tried.
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
        """Of the clean steps' time, what was spent waiting for batches; None: none came."""
        waited, total = sum(self.data_ns), sum(self.steps_ns)
        return min(1.0, waited / total) if waited and total else None

    @property
    def cpu_wait_share(self) -> float:
        """Of the clean steps, the share in which the script stood ready without a core."""
        if self.main is None or not self.wall_ns:
            return 0.0
        return min(1.0, self.main.delayed_ns / self.wall_ns)

    @property
    def sleep_share(self) -> float:
        """Of the clean steps, the share in which the script wanted no core."""
        if self.main is None or not self.wall_ns:
            return 0.0
        return max(0.0, 1 - (self.main.ran_ns + self.main.delayed_ns) / self.wall_ns)

    @property
    def loading_share(self) -> float:
        """Of the time in which the script wanted a core, what it spent making batches itself."""
        awake = 1 - self.sleep_share
        return max(0.0, (self.data_share or 0.0) - self.sleep_share) / awake if awake else 0.0

    @property
    def worker_cpu_share(self) -> float:
        """Of the clean steps, the share in which processes of the script's own had its core."""
        if not self.workers_ns or not self.wall_ns:
            return 0.0
        return min(self.cpu_wait_share, self.workers_ns / self.wall_ns)
