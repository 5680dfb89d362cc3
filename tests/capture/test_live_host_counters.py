"""What goes on around clean steps: the collector, the scheduler, the compiler."""

import _thread
import gc
import mmap
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from boundby.capture.host import counters as host_counters
from boundby.capture.host.counters import HostCounterSampler, _workers_ns
from boundby.capture.process.plan import Plan
from boundby.capture.torch.observe import most_alike
from boundby.model.host_counters import HostCounters
from tests.capture.runs import Run

linux = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the system keeps no times of threads"
)


class Clock:
    """Each look at it takes one."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


def seen(sampler: HostCounterSampler, steps: int) -> HostCounters:
    return sampler.host_counters((1.0,) * steps, None)


def test_garbage_collections_are_counted_in_their_step() -> None:
    gc.disable()
    try:
        sampler = HostCounterSampler(Clock())
        sampler.begin()
        gc.collect()
        gc.collect()
        sampler.step()
        sampler.step()
        sampler.end()
        gc.collect()
    finally:
        gc.enable()
    found = seen(sampler, 2)
    assert found.collector_ns == (2.0, 0.0)
    assert [Path(file).name for file, _ in found.collected_at] == [Path(__file__).name] * 2


def test_waiting_for_batches_is_counted_in_its_step() -> None:
    sampler = HostCounterSampler(Clock())
    sampler.waited(50)
    sampler.begin()
    sampler.waited(1)
    sampler.waited(1)
    sampler.step()
    sampler.step()
    sampler.end()
    found = sampler.host_counters((4.0, 4.0), None)
    assert found.data_ns == (2.0, 0.0)
    assert found.data_share == 0.25
    assert HostCounters().data_share is None


def test_collection_without_python_frames_has_no_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As on a thread of C++, which has no frame of its own."""
    sampler = HostCounterSampler()
    sampler.begin()
    gc.disable()
    try:
        for phase in ("start", "stop"):
            _thread.start_new_thread(sampler._collect, (phase, {}))
            while (sampler._since is None) is (phase == "start"):
                time.sleep(0.001)
        time.sleep(0.05)  # the thread's last line
        sampler.step()
        sampler.end()
    finally:
        gc.enable()
    assert seen(sampler, 1).collected_at == (("", 0),)
    assert capfd.readouterr().err == ""


def test_interpreter_state_is_restored() -> None:
    before = list(gc.callbacks)
    sampler = HostCounterSampler()
    sampler.begin()
    assert len(gc.callbacks) == len(before) + 1
    sampler.begin()
    assert len(gc.callbacks) == len(before) + 1
    sampler.end()
    sampler.end()
    assert gc.callbacks == before


def test_without_clean_steps_counters_are_unknown() -> None:
    found = HostCounterSampler().host_counters((), None)
    assert found.main is None
    assert found.collector_ns == ()


@linux
def test_spinning_thread_is_distinguished_from_a_sleeping_one() -> None:
    stop, asleep = threading.Event(), threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    threads = [threading.Thread(target=spin), threading.Thread(target=asleep.wait)]
    for thread in threads:
        thread.start()
    sampler = HostCounterSampler()
    sampler.begin()
    stop.wait(0.5)
    sampler.step()
    sampler.end()
    stop.set()
    asleep.set()
    found = seen(sampler, 1)
    assert found.main is not None and found.busiest is not None
    assert found.others_ns is not None
    # This thread slept; the other was on a core, or ready for one, all the time that there was:
    # steal time: cores that a hypervisor gave to other machines
    wanted = [thread.ran_ns + thread.delayed_ns for thread in (found.busiest, found.main)]
    assert wanted[0] > 0.2 * found.wall_ns
    assert wanted[0] > 4 * wanted[1]


def test_compiler_counters_are_read_if_the_compiler_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent = {"entire_frame_compile": 5.0, "backend_compile": 3.0}
    reasons = {"graph_break": {"Failed to trace print\n  Hint: do not": 2}}
    module = SimpleNamespace(cumulative_time_spent_ns=spent, counters=reasons)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)
    sampler = HostCounterSampler()
    sampler.begin()
    sampler.step()
    spent["entire_frame_compile"] += 70.0
    spent["entire_backward_compile"] = 20.0
    sampler.step()
    spent.clear()  # the script starts the compiler afresh
    sampler.step()
    sampler.end()
    found = seen(sampler, 3)
    assert found.compiler_ns == (0.0, 90.0, 0.0)
    assert found.graph_breaks == ("Failed to trace print",)


class Observer:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def step(self) -> None:
        self.calls.append("step")

    def end(self) -> None:
        self.calls.append("end")


def test_counters_run_during_clean_steps_only() -> None:
    run = Run(Plan(warmup=2, clean=2, issue=1, profiled=1), observer=(observer := Observer()))
    run.steps(*[10.0] * 2)
    assert observer.calls == ["begin"]
    run.steps(*[10.0] * 5)
    assert observer.calls == ["begin", "step", "step", "end"]


def test_counters_stop_when_a_run_restarts_or_ends_early() -> None:
    run = Run(Plan(warmup=1, clean=5, issue=0), observer=(observer := Observer()))
    run.steps(10.0, 10.0)
    run.windows.start_over()
    run.steps(10.0, 10.0)
    run.windows.finish()
    assert observer.calls == ["begin", "step", "end", "begin", "step", "end"]


def test_real_recompilations_are_timed() -> None:
    torch = pytest.importorskip("torch")
    compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    compiled(torch.ones(2))
    sampler = HostCounterSampler()
    sampler.begin()
    for length in (2, 3, 2):
        compiled(torch.ones(length))
        sampler.step()
    sampler.end()
    same, other, again = seen(sampler, 3).compiler_ns
    assert same == again == 0
    assert other > 0


@linux
def test_cpu_time_of_script_processes_is_counted_also_after_their_end() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    sampler = HostCounterSampler()
    sampler.begin()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        alive = _workers_ns()
        worker.communicate(b"\n")
    sampler.end()
    found = seen(sampler, 1).workers_ns
    assert alive is not None and found is not None
    assert found > 0.2e9
    # Alive then, reaped now: it is counted once.
    after = _workers_ns()
    assert after is not None and after - alive < 0.2e9


def test_steal_time_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of user, nice, system, idle, disk, irq, softirq, steal; guests are among the first."""
    told = tmp_path / "stat"
    monkeypatch.setattr(host_counters, "_CORES", told)
    sampler = HostCounterSampler()
    told.write_text("cpu  100 0 50 1000 10 0 0 40 7 0\ncpu0 1 2 3\n")
    sampler.begin()
    told.write_text("cpu  160 0 60 1010 10 0 0 60 9 0\ncpu0 1 2 3\n")
    sampler.end()
    found = sampler.host_counters((), None)
    assert found.steal_share == pytest.approx(20 / 90)
    told.write_text("nothing of the kind\n")
    sampler.begin()
    sampler.end()
    assert sampler.host_counters((), None).steal_share is None


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system keeps no such figures"
)
def test_pages_returned_to_the_system_are_counted() -> None:
    """A piece of memory that is written and given back, over and over; then one that stays."""
    pages = 1000
    size = pages * mmap.PAGESIZE

    def written() -> mmap.mmap:
        piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        piece.write(b"1" * size)
        return piece

    sampler = HostCounterSampler()
    sampler.begin()
    for _ in range(20):
        written().close()
        sampler.step()
    sampler.end()
    found = sampler.host_counters((1.0,) * 20, None, 700.0)
    assert found.kept_pages is not None and found.kept_pages < 10 * pages
    assert len(found.step_pages) == 20 and min(found.step_pages) >= 0.9 * pages
    assert sum(found.step_pages) <= found.fresh_pages
    assert found.system_ns > 0 and found.fresh_page_ns == 700.0
    pieces = []
    sampler.begin()
    pieces += [written() for _ in range(20)]
    sampler.end()
    kept = sampler.host_counters((1.0,), None).kept_pages
    assert kept is not None and kept >= 0.8 * 20 * pages
    for piece in pieces:
        piece.close()


def test_profiled_step_with_least_cpu_wait_is_chosen() -> None:
    walls = {1: 30e6, 2: 18e6, 3: 90e6}
    # The first is as long as a clean step, for waiting; the second has more of its own.
    assert most_alike(walls, {1: 18e6, 2: 1e6, 3: 80e6}, own_ns=10e6) == 2
    assert most_alike(walls, {1: 0.0, 2: 0.0, 3: 0.0}, own_ns=29e6) == 1
