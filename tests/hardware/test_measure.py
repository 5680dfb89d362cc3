"""A real, quick measurement of this machine's CPU."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

import boundby
from boundby.hardware import cache, identify, measure
from boundby.hardware.probes import gaps, matmul, overhead, vector
from boundby.hardware.stopwatch import stopwatch_for
from boundby.model import Machine, store
from boundby.model.errors import BoundbyError
from tests.fork_server import HANG_S

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))


@pytest.fixture(scope="module")
def notices() -> list[str]:
    """What was said while the machine was measured."""
    return []


@pytest.fixture(scope="module")
def machine(cache_home: Path, notices: list[str]) -> Machine:
    """Measured although there is a saved one, which cannot be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache_home))
        broken = cache.path_for(identify("cpu"))
        broken.parent.mkdir(parents=True)
        broken.write_text("{")
        found = boundby.machine("cpu", quick=True, notice=notices.append)
        # Roofs that were measured on a busy machine are not kept: these are.
        found = msgspec.structs.replace(found, under_load=False)
        for marker in cache.folder().glob("*.busy"):
            store.write(found, marker.with_suffix(".json"))
        return found


def test_every_applicable_roof_is_measured(machine: Machine) -> None:
    arithmetic = [f"{unit}.{dtype}" for unit in ("matmul", "vector") for dtype in vector.DTYPES]
    for name in (*arithmetic, "memory.cache", "memory.dram"):
        roof = machine.roof(name)
        assert roof is not None, name
        assert roof.value > 0
        assert roof.source == "measured"
    assert machine.overheads.eager_op_ns is not None
    assert machine.overheads.python_add_ns is not None
    assert machine.overheads.trained_op_ns is not None
    assert machine.overheads.launch_ns is None, "a CPU launches nothing"
    assert machine.quick
    assert machine.curves["matmul.float32"]


def test_second_call_reads_the_saved_machine(machine: Machine) -> None:
    assert boundby.machine("cpu", quick=True) == machine


@pytest.mark.usefixtures("machine")
def test_broken_cache_is_reported_and_measured_again(notices: list[str]) -> None:
    assert "measuring again" in notices[0]


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        ("tpu", "no such device: 'tpu'"),
        ("cuda:x", "no such device: 'cuda:x'"),
        ("mps", "not supported yet; the CPU is: --device cpu"),
        ("xpu", "not supported yet; the CPU is: --device cpu"),
        ("cuda:99", "CUDA" if not torch.cuda.is_available() else "no device cuda:99"),
    ],
)
def test_unavailable_device_is_a_one_line_error(device: str, complaint: str) -> None:
    with pytest.raises(BoundbyError) as caught:
        boundby.machine(device)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_interrupt_leaves_no_file_behind(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "boundby", "machine", "--device", "cpu"],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + HANG_S
    while not psutil.Process(process.pid).children():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert errors.decode().strip().splitlines()[-1].startswith("boundby: interrupted")
    assert not list(tmp_path.rglob("*.json"))
    assert not list(tmp_path.rglob(".boundby-*"))


@pytest.mark.gpu
def test_gpu_roofs_are_below_the_datasheet() -> None:
    measured = boundby.machine("cuda", quick=True, remeasure=True)
    for roof in measured.roofs:
        if roof.datasheet:
            assert roof.value <= 1.02 * roof.datasheet, roof.name
    bfloat16 = measured.roof("matmul.bfloat16")
    assert bfloat16 is not None
    assert bfloat16.datasheet is None or bfloat16.value > 0.4 * bfloat16.datasheet
    assert measured.roof("matmul.float64") is not None
    assert measured.roof("vector.float64") is not None
    assert measured.overheads.sync_ns is not None
    assert measured.overheads.graph_kernel_ns is not None


@pytest.mark.gpu
def test_host_cost_of_compiled_code_is_measured() -> None:
    with torch.inference_mode():
        found = overhead.measure_compiled(identify("cuda"), stopwatch_for("cuda", 0), 25.0)
    assert found.keys() == {"compiled_call_ns", "compiled_kernel_ns", "trained_kernel_ns"}
    assert all(timing.ns > 0 for timing in found.values())


@pytest.mark.gpu
def test_kernel_gaps_in_a_graph_are_shorter_than_in_a_queue() -> None:
    with torch.inference_mode():
        found = gaps.measure(identify("cuda"), stopwatch_for("cuda", 0))
    assert found["graph_gap_ns"].ns < found["kernel_gap_ns"].ns
    assert found["long_graph_gap_ns"].ns < found["long_kernel_gap_ns"].ns
    assert found["kernel_gap_ns"].ns > 0
    assert found["shortest_kernel_ns"].ns > 0


def test_out_of_memory_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20.00 GiB.")

    monkeypatch.setattr(matmul, "sweep", exhausted)
    with pytest.raises(BoundbyError) as caught:
        measure.measure(identify("cpu"), quick=True, progress=lambda *_: None)
    assert "ran out of memory while measuring" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
