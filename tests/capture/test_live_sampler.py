"""Lines without calls are found by sampling, which leaves no trace in the program."""

import sys
import threading
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.analysis.account import attribute_step  # noqa: E402
from boundby.capture import kineto  # noqa: E402
from boundby.capture.host.line_sampler import LineSampler  # noqa: E402
from boundby.capture.torch.device import TorchDevice  # noqa: E402
from boundby.capture.torch.enrich import enrich_timeline  # noqa: E402
from boundby.capture.torch.profiler import TorchProfiler  # noqa: E402
from boundby.capture.torch.profiler_tree import read_profiler_tree  # noqa: E402
from tests.machines import round_machine  # noqa: E402


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_running_function_is_sampled() -> None:
    sampler = LineSampler()
    sampler.start()
    for _ in range(50):
        spin(0.2)
        if len(sampler.samples()) > 3:
            break
    sampler.stop()
    samples = sampler.samples()
    assert samples
    assert [sample.time_ns for sample in samples] == sorted(s.time_ns for s in samples)
    assert any(s.function == "spin" and s.file == __file__ for s in samples)


def test_changes_are_undone() -> None:
    before, threads = sys.getswitchinterval(), threading.active_count()
    sampler = LineSampler()
    sampler.start()
    assert threading.active_count() == threads  # the script does not see it
    sampler.stop()
    sampler.stop()
    assert sys.getswitchinterval() == before
    count = len(sampler.samples())
    spin(0.02)
    assert len(sampler.samples()) == count


@pytest.mark.parametrize("calls", [1, 40])
def test_a_slow_line_without_calls_is_the_slowest(tmp_path: Path, calls: int) -> None:
    """Also in a function that has mostly ended before the sample."""
    source = dedent(f"""
        def part():
            x = torch.ones(8)
            total = 0
            for i in range({400_000 // calls}):
                total += i * i
            return torch.relu(x)

        def step():
            for _ in range({calls}):
                part()
    """)
    path = tmp_path / "script.py"
    path.write_text(source)
    module: dict[str, Any] = {"torch": torch, "__name__": "script"}
    exec(compile(source, str(path), "exec"), module)
    profiler = TorchProfiler(torch, TorchDevice(torch), tmp_path)
    assert profiler.start(), profiler.problem
    module["step"]()
    profiler.step()
    module["step"]()
    profiler.stop()
    timeline = kineto.read(profiler.trace).timeline(1)
    timeline = enrich_timeline(
        timeline, read_profiler_tree(profiler.results), {}, profiler.sampler.samples()
    )
    attribution = attribute_step(timeline, round_machine(), wall_ns=timeline.wall_ns)
    slowest = attribution.lines[0]
    assert slowest.where.endswith(("script.py:5", "script.py:6"))
    assert slowest.share > 0.5
    assert slowest.parts["python"] == pytest.approx(slowest.ns)
