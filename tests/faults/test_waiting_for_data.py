"""Waiting for batches, sized by hand: what workers can make of it, and what they cannot."""

import msgspec
import numpy as np
import pytest

from boundby.faults import waiting_for_data
from boundby.model import HostKind, OpCall
from boundby.model.host_counters import HostCounters, ThreadTime
from boundby.step.loading import interpreted
from boundby.step.model import StepModel
from tests.faults.step_models import finding, step_model_of, sure
from tests.timelines import Scene, tensor

RELU = OpCall(name="aten::relu", args=(tensor(1_000_000),))
SMALL = OpCall(name="aten::relu", args=(tensor(1_000),))


def test_waiting_for_loader_costs_device_idle_time() -> None:
    scene = Scene(end=400)
    scene.on_host(0, 250, HostKind.DATA, "enumerate(DataLoader)")
    launch = scene.on_host(258, 260, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(260, 398, launch=launch)
    scene.on_host(261, 398, HostKind.SYNC, "cudaStreamSynchronize")  # a loss is printed
    step_model = step_model_of(scene.timeline())
    detection = waiting_for_data.detect(step_model)
    assert detection is not None
    assert step_model.saving(detection.high) == pytest.approx(250e3 * 0.99, rel=0.05)


def test_batch_rate_is_limited_by_worker_count() -> None:
    scene = Scene(end=1100)
    scene.on_host(0, 1000, HostKind.DATA, "enumerate(DataLoader)#_SingleProcess")
    launch = scene.on_host(1005, 1010, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(1010, 1098, launch=launch)
    scene.on_host(1011, 1098, HostKind.SYNC, "cudaStreamSynchronize")
    for cores, shortest in ((1, 1000e3), (2, 500e3), (8, 125e3), (16, 105e3)):
        step_model = step_model_of(scene.timeline(), host_counters=HostCounters(cores=cores))
        detection = waiting_for_data.detect(step_model)
        assert detection is not None
        # As many as are needed, up to all cores, make a batch in a millisecond each; the rest of a
        # step takes 0.1 ms.
        assert step_model.evaluate(detection.high) == pytest.approx(shortest, rel=0.03)


def data_on_a_cpu(
    waited_us: float, *, ran: float, ours: float, cores: int, delayed: float = 0.0
) -> StepModel:
    """A step of 300 us of work after a batch; `ran`, `ours`: of the clean steps' time."""
    scene = Scene(end=waited_us + 300)
    scene.on_host(0, waited_us, HostKind.DATA, "enumerate(DataLoader)#_SingleProcess")
    scene.on_host(waited_us, waited_us + 300, call=RELU)
    seen = HostCounters(
        wall_ns=1e9,
        main=ThreadTime(ran_ns=ran * 1e9, delayed_ns=delayed * 1e9),
        ours_ns=ours * 1e9,
        cores=cores,
    )
    return step_model_of(scene.timeline(), host_counters=seen)


def test_cpu_workers_take_cores_from_the_step() -> None:
    busy = sure(data_on_a_cpu(500, ran=1.0, ours=1.375, cores=2), "waiting-for-data")
    # 300 us on two cores and 500 on one are 1100 of work for two, 550 us of the 800; but the thread
    # that shares its core has half of it, and the other waits: 600.
    assert busy.saving_ns.expected == pytest.approx(200e3, rel=0.02)
    assert busy.saving_ns.high > 350e3
    # One core of two is idle while the step runs: the batch is made there.
    alone = sure(data_on_a_cpu(200, ran=1.0, ours=1.0, cores=2), "waiting-for-data")
    assert alone.saving_ns.expected == pytest.approx(0.92 * 200e3, rel=0.02)
    # Short batches beside a step on all cores only move the waiting.
    crowded = finding(data_on_a_cpu(60, ran=1.0, ours=660 / 360, cores=2), "waiting-for-data")
    assert crowded is not None and crowded.saving_ns.expected == pytest.approx(0, abs=1e3)
    # Nor where others have the cores.
    others = data_on_a_cpu(60, ran=0.5, ours=0.9, cores=2, delayed=0.5)
    found = finding(others, "waiting-for-data")
    assert found is not None and found.saving_ns.expected == pytest.approx(0, abs=1e3)
    spinning = sure(data_on_a_cpu(500, ran=1.0, ours=2.0, cores=2), "waiting-for-data")
    assert spinning.saving_ns.low == 0
    asleep = sure(data_on_a_cpu(200, ran=0.6, ours=1.2, cores=2), "waiting-for-data")
    # A batch that sleeps takes no core: what is left is fetching it.
    assert asleep.saving_ns.expected == pytest.approx(0.92 * 200e3, rel=0.02)


@pytest.mark.parametrize("others", [0.5, 1.0])
def test_only_cheaper_samples_help_if_workers_use_all_cores(others: float) -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 700, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    scene.on_host(700, 1000, call=RELU)
    seen = HostCounters(wall_ns=1e9, ours_ns=0.9e9, workers_ns=others * 1e9, cores=2)
    step_model = step_model_of(scene.timeline(), host_counters=seen)
    detection = waiting_for_data.detect(step_model)
    assert detection is not None
    is_full = others == 1.0
    assert ("cheaper" in detection.change) == is_full
    assert ("half the time" in detection.assumes) == is_full
    assert step_model.saving(detection.expected) == pytest.approx(350e3, rel=1e-3)


@pytest.mark.parametrize(
    ("have", "delayed", "said"),
    [
        (1, 0.0, "num_workers=2, persistent_workers=True)  # instead of 1"),
        (2, 0.0, "num_workers=4, persistent_workers=True)  # instead of 2"),
        (2, 0.3, "# make samples cheaper: none of 2 cores is idle"),
    ],
)
def test_more_workers_are_advised_while_a_core_is_idle(
    have: int, delayed: float, said: str
) -> None:
    """Not where other processes use the cores and the script waits for one."""
    scene = Scene(end=1000)
    scene.on_host(0, 700, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    scene.on_host(700, 1000, call=RELU)
    main = ThreadTime(ran_ns=0.3e9, delayed_ns=delayed * 1e9)
    seen = HostCounters(wall_ns=1e9, main=main, cores=2, loader_workers=have)
    detection = waiting_for_data.detect(step_model_of(scene.timeline(), host_counters=seen))
    assert detection is not None and said in detection.change


def test_line_is_that_of_the_outermost_loader() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 600, HostKind.DATA, "enumerate(Prepared)")
    scene.on_host(50, 550, HostKind.PYTHON, "fetch")
    scene.on_host(100, 500, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    launch = scene.on_host(615, 618, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(620, 900, launch=launch)
    timeline = scene.timeline()
    host = msgspec.structs.replace(timeline.host, source=np.array([0, 1, 1, 0], np.int32))
    lines = ["train.py:3", "library.py:10"]
    timeline = msgspec.structs.replace(timeline, host=host, sources=lines)
    found = sure(step_model_of(timeline), "waiting-for-data")
    assert found.where == ["train.py:3"]
    assert "more than now" in found.change


def made_by(function: str) -> StepModel:
    """A batch of 500 us that one function makes, and a product; both cores are busy."""
    scene = Scene(end=800)
    scene.on_host(0, 500, HostKind.DATA, "enumerate(DataLoader)#_SingleProcess")
    scene.on_host(0, 500, HostKind.PYTHON, function)
    scene.on_host(500, 800, call=RELU)
    timeline = scene.timeline()
    host = msgspec.structs.replace(timeline.host, source=np.array([0, 1, 0], np.int32))
    timeline = msgspec.structs.replace(timeline, host=host, sources=["train.py:9", "train.py:3"])
    seen = HostCounters(
        wall_ns=1e9, main=ThreadTime(ran_ns=1e9, delayed_ns=0), ours_ns=1.375e9, cores=2
    )
    return step_model_of(timeline, host_counters=seen)


def test_python_loops_of_samples_can_be_operators() -> None:
    decoded = sure(made_by("PIL/Image.py(900): convert"), "waiting-for-data")
    looped = sure(made_by("train.py(2): __getitem__"), "waiting-for-data")
    assert decoded.saving_ns.expected == pytest.approx(200e3, rel=0.02)
    assert looped.saving_ns.expected == pytest.approx(0.92 * 500e3, rel=0.05)
    assert "tensor operators" in looped.change and "tensor operators" not in decoded.change
    assert looped.where == ["train.py:9", "train.py:3"]


@pytest.mark.parametrize(("us", "short"), [(10.0, True), (1000.0, False)])
def test_short_calls_made_once_per_sample_can_be_one_operator(us: float, short: bool) -> None:
    scene = Scene(end=20 * us)
    for at in range(20):
        scene.on_host(at * us, (at + 1) * us, HostKind.PYTHON, "train.py(2): __getitem__")
        scene.on_host(at * us, (at + 1) * us, HostKind.PYTHON, "<built-in method decode>")
    timeline = scene.timeline()
    host = msgspec.structs.replace(timeline.host, source=np.zeros(40, np.int32))
    timeline = msgspec.structs.replace(timeline, host=host, sources=["train.py:3"])
    found = interpreted(step_model_of(timeline))
    assert found[::2].all()
    assert (found[1::2] == short).all()


@pytest.mark.parametrize("samples", [1, 16])
def test_operators_called_for_each_sample_can_be_called_once(samples: int) -> None:
    """On one core, where workers save nothing."""
    took = 320 / samples
    scene = Scene(end=620)
    scene.on_host(0, 320, HostKind.DATA, "enumerate(DataLoader)#_SingleProcess")
    for at in range(samples):
        start = at * took
        scene.on_host(start, start + took, HostKind.PYTHON, "train.py(2): __getitem__")
        scene.on_host(start, start + took, HostKind.PYTHON, "torch/functional.py(600): stft")
        scene.on_host(start + took / 4, start + took, call=SMALL)
    scene.on_host(320, 620, call=RELU)
    timeline = scene.timeline()
    lines = [0, *[1] * 3 * samples, 0]
    host = msgspec.structs.replace(timeline.host, source=np.array(lines, np.int32))
    timeline = msgspec.structs.replace(timeline, host=host, sources=["train.py:9", "train.py:3"])
    seen = HostCounters(
        wall_ns=1e9, main=ThreadTime(ran_ns=1e9, delayed_ns=0), ours_ns=1e9, cores=1
    )
    found = finding(step_model_of(timeline, host_counters=seen), "waiting-for-data")
    if samples > 1:
        assert found is not None and found.where == ["train.py:9", "train.py:3"]
        assert found.saving_ns.expected == pytest.approx(0.92 * 320e3, rel=0.05)
    else:
        assert found is None or found.saving_ns.expected < 100e3
