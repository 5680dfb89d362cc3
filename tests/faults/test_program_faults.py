"""Settings, data, files and metrics in programs, on steps made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from boundby.faults import Detection, cudnn_benchmark, recompilation
from boundby.model import Allocations, HostKind, OpCall, Phase, Tensor
from boundby.model.evidence import (
    Padding,
    ProgramSettings,
    RebuiltTensor,
    StepEvidence,
)
from boundby.model.host_counters import CompiledAgain, HostCounters
from boundby.step.model import StepModel
from tests.faults.program_steps import BIG, step_of, two_calls
from tests.faults.step_models import finding, sure
from tests.timelines import Scene, tensor


def test_rebuilt_tensor_costs_its_line_time() -> None:
    rebuilt = RebuiltTensor(where="train.py:1", names=["mask"], bytes=4e6, times=1)
    found = sure(two_calls(StepEvidence(rebuilt=[rebuilt])), "rebuilt-tensors")
    assert found.saving_ns.expected == pytest.approx(50e3, rel=0.05)
    assert "mask" in found.change


def test_what_a_step_makes_several_times_is_left_once() -> None:
    rebuilt = RebuiltTensor(
        where="train.py:2", names=["buckets(...)"], bytes=0.0, times=4, once_a_step=True
    )
    found = sure(two_calls(StepEvidence(rebuilt=[rebuilt])), "rebuilt-tensors")
    assert found.saving_ns.expected == pytest.approx(150e3, rel=0.05)
    assert "once in a step" in found.change and "4 calls" in found.assumes


def test_padding_saves_its_share_of_token_operators() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(4, 64, 32),)))
    scene.on_host(100, 200, call=OpCall(name="aten::relu", args=(tensor(4, 32),)))
    padding = Padding(where=["train.py:1"], width=64, lengths=[16, 16, 8, 8])
    found = sure(step_of(scene.timeline(), [0, 1], StepEvidence(padding=padding)), "padding")
    assert found.saving_ns.expected == pytest.approx(75e3, rel=0.1)
    assert "81% of it is padding" in found.change and found.kind == "mistake"


def test_padded_batch_of_the_profiled_step_may_have_another_width() -> None:
    scene = Scene(end=200)
    words = tensor(4, 48, dtype="int64")
    embed = OpCall(name="aten::embedding", args=(tensor(100, 32), words))
    scene.on_host(0, 100, call=embed)
    scene.on_host(100, 200, call=OpCall(name="aten::relu", args=(tensor(4, 48, 32),)))
    padding = Padding(where=["train.py:1"], width=64, lengths=[63, 16, 16, 16])
    found = sure(step_of(scene.timeline(), [0, 1], StepEvidence(padding=padding)), "padding")
    assert found.saving_ns.high == pytest.approx(0.57 * 200e3, rel=0.1)


def test_padding_to_the_longest_row_of_a_batch_is_tuning() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(4, 64, 32),)))
    padding = Padding(where=["train.py:1"], width=64, lengths=[63, 32, 32, 32])
    found = sure(step_of(scene.timeline(), [0], StepEvidence(padding=padding)), "padding")
    assert found.kind == "tuning"


def test_costly_settings_are_reported_at_their_line() -> None:
    settings = ProgramSettings(
        anomaly_lines=["train.py:1"], anomaly_set_at=["train.py:3"], fills_memory=True
    )
    scene = Scene(end=200)
    scene.on_host(0, 100, call=BIG)
    scene.on_host(100, 140, HostKind.OP, "aten::isnan")
    scene.on_host(140, 200, HostKind.OP, "aten::empty")
    scene.on_host(140, 190, HostKind.OP, "aten::fill_")
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD, Phase.FORWARD]

    def step(evidence: StepEvidence) -> StepModel:
        return step_of(scene.timeline(), [0, 0, 1, 1], evidence, phases)

    anomaly = sure(step(StepEvidence(settings=settings)), "anomaly-detection")
    assert anomaly.where == ["train.py:3", "train.py:1"]
    assert anomaly.saving_ns.expected > 30e3
    filled = sure(step(StepEvidence(settings=settings)), "deterministic-algorithms")
    assert filled.where == ["train.py:2"] and filled.saving_ns.expected > 40e3
    assert finding(step(StepEvidence()), "anomaly-detection") is None
    assert finding(step(StepEvidence()), "deterministic-algorithms") is None


def test_anomaly_detection_that_costs_nothing_is_reported() -> None:
    settings = ProgramSettings(anomaly_lines=["train.py:1"], anomaly_set_at=["train.py:1"])
    found = sure(two_calls(StepEvidence(settings=settings)), "anomaly-detection")
    assert found.saving_ns.expected == 0 and found.where == ["train.py:1"]


def test_threads_beyond_cores_are_reported() -> None:
    many = StepEvidence(settings=ProgramSettings(threads=16, cores=2, set_at=["train.py:3"]))
    assert sure(two_calls(many), "too-many-threads").where == ["train.py:3"]
    few = StepEvidence(settings=ProgramSettings(threads=2, cores=2))
    assert finding(two_calls(few), "too-many-threads") is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_double_precision_takes_twice_the_bytes(dtype: str) -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(1_000_000, dtype=dtype),)))
    found = finding(step_of(scene.timeline(), [0]), "float64")
    if dtype == "float32":
        assert found is None
    else:
        assert found is not None and found.where[0] == "train.py:1"
        assert found.saving_ns.expected == pytest.approx(50e3, rel=0.1)


def test_float64_operator_takes_as_long_as_the_called_one_in_float32() -> None:
    """Of a convolution: in float32 the framework chooses another implementation."""
    image, weight = tensor(8, 4, 32, 32, dtype="float64"), tensor(4, 4, 3, 3, dtype="float64")
    args = (image, weight, None, (1, 1), (1, 1))
    scene = Scene(end=1000)
    scene.on_host(0, 1000, call=OpCall(name="aten::conv2d", args=args))
    scene.on_host(10, 990, call=OpCall(name="aten::_slow_conv2d_forward", args=args))
    step = step_of(scene.timeline(), [1, 1])
    finding(step, "float64")
    step.timings.results |= {
        one: 100.0 if one.args[0] == image else 10.0
        for one in step.timings.requested
        if one.name == "aten::conv2d"
    }
    found = finding(step, "float64")
    assert found is not None
    work = sum(record.ns for record in step.op_records)
    assert found.saving_ns.expected == pytest.approx(0.9 * work)


def test_float64_is_reported_where_it_enters() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(1000, dtype="float64"),)))
    evidence = StepEvidence(settings=ProgramSettings(doubles_made_at=["train.py:3"]))
    step = step_of(scene.timeline(), [0], evidence=evidence)
    assert sure(step, "float64").where == ["train.py:3", "train.py:1"]


@pytest.mark.parametrize(
    "function",
    [
        "torch/serialization.py(900): save",
        "<built-in function fsync>",
        "<built-in method writerow of _csv.writer object at 0x7f>",
        "numpy/lib/_npyio_impl.py(675): savez_compressed",
        "shutil.py(236): copyfile",
        "<built-in method commit of sqlite3.Connection object at 0x7f>",
    ],
)
def test_file_writes_are_recognised_by_their_functions(function: str) -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, function)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 0]), "files-in-step")
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected > 80e3


@pytest.mark.parametrize(
    "function", ["copy.py(128): deepcopy", "torch/nn/modules/module.py(2500): load_state_dict"]
)
def test_copies_of_weights_in_the_step_are_found(function: str) -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, function)
    scene.on_host(20, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 2, 0]), "copied-state")
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected == pytest.approx(99e3, rel=0.05)


def test_writing_an_archive_is_not_data_preparation() -> None:
    def archive(around: str) -> StepModel:
        scene = Scene(end=200)
        scene.on_host(0, 100, HostKind.PYTHON, around)
        scene.on_host(10, 90, HostKind.PYTHON, "zipfile.py(1700): open")
        scene.on_host(100, 200, call=BIG)
        return step_of(scene.timeline(), [2, 2, 0])

    written = archive("numpy/lib/npyio.py(675): savez_compressed")
    assert sure(written, "files-in-step") and finding(written, "main-process-data") is None
    assert sure(archive("lib/data.py(3): load"), "main-process-data")


def test_reading_a_file_is_not_writing() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "<built-in method read of _io.TextIOWrapper object>")
    scene.on_host(100, 200, call=BIG)
    assert finding(step_of(scene.timeline(), [2, 0]), "files-in-step") is None


def test_file_opening_counts_at_the_writing_line() -> None:
    def opened(then: str) -> StepModel:
        scene = Scene(end=300)
        scene.on_host(0, 300, HostKind.PYTHON, "train.py(1): <module>")
        scene.on_host(0, 100, HostKind.PYTHON, "<built-in function open>")
        scene.on_host(100, 150, HostKind.PYTHON, then)
        scene.on_host(200, 300, call=BIG)
        return step_of(scene.timeline(), [0, 1, 2, 0])

    found = sure(opened("json/__init__.py(120): dump"), "files-in-step")
    assert found.where == ["train.py:2", "train.py:3"]
    assert found.saving_ns.expected == pytest.approx(150e3, rel=0.05)
    assert finding(opened("json/__init__.py(299): loads"), "files-in-step") is None


def stored(storage: int) -> Tensor:
    return Tensor(shape=(1000, 1000), dtype="float32", storage=storage)


def chain(*names: str) -> StepModel:
    """Operators of 50 us, each of which reads what the one before it made."""
    scene = Scene(end=50 * len(names))
    for at, name in enumerate(names):
        args = (stored(100 + at), stored(50)) if name == "aten::mm" else (stored(100 + at),)
        scene.on_host(50 * at, 50 * at + 50, call=OpCall(name=name, args=args))
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(
            row=np.arange(len(names), dtype=np.int32),
            storage=np.arange(101, 101 + len(names), dtype=np.int64),
            bytes=np.full(len(names), 4_000_000, np.int64),
        ),
    )
    return step_of(timeline, list(range(len(names))))


def test_log_of_softmax_is_one_operator() -> None:
    found = sure(chain("aten::_softmax", "aten::log", "aten::relu"), "softmax-log-apart")
    assert found.where == ["train.py:2", "train.py:1"]
    assert found.saving_ns.expected == pytest.approx(50e3, rel=0.1)
    guarded = chain("aten::_softmax", "aten::add", "aten::log")
    found = sure(guarded, "softmax-log-apart")
    assert found.where == ["train.py:3", "train.py:2", "train.py:1"]
    assert found.saving_ns.expected == pytest.approx(100e3, rel=0.1)
    apart = chain("aten::_softmax", "aten::relu", "aten::log")
    assert finding(apart, "softmax-log-apart") is None


def test_one_hot_matmul_is_a_lookup() -> None:
    found = sure(chain("aten::one_hot", "aten::_to_copy", "aten::mm"), "one-hot-products")
    assert found.saving_ns.expected > 0.8 * 150e3
    assert finding(chain("aten::relu", "aten::mm"), "one-hot-products") is None


def test_distribution_checks_are_recognised_by_their_frames() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "torch/distributions/constraints.py(400): check")
    scene.on_host(10, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [1, 1, 0]), "distribution-checks")
    assert found.where == ["train.py:2"]
    assert found.saving_ns.expected == pytest.approx(100e3, rel=0.2)


def test_recompilation_names_lines_and_compiler_reasons() -> None:
    seen = HostCounters(
        steps_ns=(250e3, 250e3),
        compiler_ns=(100e3, 0.0),
        compiled_again=(CompiledAgain(where="train.py:2", times=5, reason="size mismatch"),),
        graph_break_lines=(("train.py:3", "Unsupported Tensor.item() call"),),
    )
    evidence = StepEvidence(settings=ProgramSettings(compiled_at=["train.py:1"]))
    step = two_calls(evidence)
    step.host_counters = seen
    found = sure(step, "recompilation")
    assert found.where == ["train.py:1", "train.py:2", "train.py:3"]
    assert "train.py:2 was compiled 5 times: size mismatch" in found.evidence
    assert "graph break at train.py:3: Unsupported Tensor.item() call" in found.evidence


def test_recompilation_limit_is_reported_without_a_compilation() -> None:
    step = two_calls()
    again = (CompiledAgain(where="train.py:2", times=8),)
    step.host_counters = HostCounters(
        steps_ns=(250e3,), gave_up_compiling=True, compiled_again=again
    )
    detection = recompilation.detect(step)
    assert detection is not None and "dynamic=True" in detection.change
    assert "has run uncompiled" in detection.evidence


def values_read(count: int, *, by_library: bool = False) -> StepModel:
    """A line that reads so many values, 20 us each, and a product."""
    scene = Scene(end=20 * count + 100)
    for at in range(count):
        scene.on_host(
            20 * at, 20 * at + 20, HostKind.OP, "aten::item", call=OpCall(name="aten::item")
        )
    scene.on_host(20 * count, 20 * count + 100, call=BIG)
    inside = np.array([0 if by_library else -1] * count + [-1], np.int32)
    return step_of(scene.timeline(), [2] * count + [0], inside=inside)


def test_values_read_one_by_one_are_host_metrics() -> None:
    found = sure(values_read(10), "host-metrics")
    assert found.where == ["train.py:3"] and "one read" in found.change
    assert found.saving_ns.expected == pytest.approx(200e3, rel=0.1)
    # A loss that is logged is one value.
    assert finding(values_read(1), "host-metrics") is None
    # A trainer's reads are all at the script's line that starts the training.
    assert finding(values_read(10, by_library=True), "host-metrics") is None


@pytest.mark.parametrize(
    ("function", "counts"),
    [
        ("<built-in method tolist of Tensor object>", True),
        ("<built-in method tolist of numpy.ndarray object>", False),
        ("<built-in method cpu of Tensor object>", False),
    ],
)
def test_values_read_from_numpy_arrays_are_not_host_metrics(function: str, counts: bool) -> None:
    scene = Scene(end=500)
    for at in range(10):
        scene.on_host(40 * at, 40 * at + 40, HostKind.PYTHON, function)
    scene.on_host(400, 500, call=BIG)
    found = finding(step_of(scene.timeline(), [2] * 10 + [0]), "host-metrics")
    assert (found is not None) == counts


def test_python_between_reads_belongs_to_metrics() -> None:
    scene = Scene(end=500)
    scene.on_host(0, 500, HostKind.PYTHON, "train.py(1): <module>")
    for at in range(10):
        scene.on_host(40 * at + 20, 40 * at + 40, call=OpCall(name="aten::item"))
    scene.on_host(400, 500, call=BIG)
    found = sure(step_of(scene.timeline(), [0] + [2] * 10 + [1]), "host-metrics")
    assert found.saving_ns.high == pytest.approx(400e3, rel=0.1)


def test_model_call_at_a_line_that_reads_its_loss_is_not_a_metric() -> None:
    scene = Scene(end=800)
    for start in range(0, 800, 200):
        scene.on_host(start, start + 180, HostKind.PYTHON, "nn.Module: Net_0")
        scene.on_host(start, start + 180, call=BIG)
        scene.on_host(start + 180, start + 200, call=OpCall(name="aten::item"))
    step = step_of(scene.timeline(), [2] * 12)
    found = sure(step, "host-metrics")
    assert found.saving_ns.high == pytest.approx(80e3, rel=0.1)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("sklearn/metrics/_classification.py(1180): f1_score", "host-metrics"),
        ("transformers/tokenization_utils_base.py(2900): __call__", "main-process-data"),
        ("PIL/Image.py(2400): resize", "main-process-data"),
        ("json/__init__.py(299): loads", "main-process-data"),
    ],
)
def test_metric_and_data_libraries_are_recognised_by_their_functions(
    function: str, fault: str
) -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, function)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 0]), fault)
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected > 80e3
    # Inside a loader's batch it is the loader's.
    loading = Scene(end=200)
    loading.on_host(0, 100, HostKind.DATA, "enumerate(DataLoader)#__next__")
    loading.on_host(0, 100, HostKind.PYTHON, function)
    loading.on_host(100, 200, call=BIG)
    assert finding(step_of(loading.timeline(), [2, 2, 0]), fault) is None


def test_fixed_shape_convolutions_without_cudnn_benchmark_are_reported() -> None:
    scene = Scene(end=100)
    launch = scene.on_host(0, 10, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 100, launch=launch)
    timeline = scene.timeline()
    record = SimpleNamespace(name="aten::cudnn_convolution", ns=90e3, floor_ns=40e3)

    def detected(setting: bool | None) -> object:
        step = SimpleNamespace(
            evidence=StepEvidence(settings=ProgramSettings(cudnn_benchmark=setting)),
            observation=None,
            op_records=[record],
            wall_ns=float(timeline.wall_ns),
            lines=lambda _: ["train.py:1"],
        )
        return cudnn_benchmark.detect(step)  # type: ignore[arg-type]

    found = detected(False)
    assert isinstance(found, Detection) and found.high.op_ns == {0: 90e3 - 0.6 * 50e3}
    assert detected(True) is None and detected(None) is None


def test_data_parallel_costs_its_copies() -> None:
    def on_device(*functions: str) -> StepModel:
        scene = Scene(end=400)
        sources = []
        scene.on_host(0, 300, HostKind.PYTHON, "torch/nn/parallel/data_parallel.py(170): forward")
        sources.append(1)
        for at, function in enumerate(functions):
            scene.on_host(100 * at, 100 * at + 100, HostKind.PYTHON, function)
            sources.append(1)
        scene.on_host(300, 320, call=BIG)
        launch = scene.on_host(310, 315, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(320, 400, launch=launch)
        return step_of(scene.timeline(), [*sources, 0, 0])

    copying = "torch/nn/parallel/replicate.py(78): replicate"
    found = sure(on_device(copying, copying), "data-parallel")
    assert found.where == ["train.py:2"]
    assert found.saving_ns.expected == pytest.approx(200e3, rel=0.3)
    assert finding(on_device(), "data-parallel") is None


@pytest.mark.parametrize("needed", [False, True])
def test_a_loop_that_reads_values_for_the_host_counts_with_all_of_its_lines(needed: bool) -> None:
    scene = Scene(end=700)
    scene.on_host(0, 600, HostKind.PYTHON, "train.py(1): suppressed")
    for at in range(10):
        one = Tensor(shape=(100, 100), dtype="float32", storage=50)
        scene.on_host(60 * at, 60 * at + 40, call=OpCall(name="aten::cdist", args=(one, one)))
        scene.on_host(60 * at + 40, 60 * at + 60, call=OpCall(name="aten::item"))
    result = Tensor(shape=(1000, 1000), dtype="float32", storage=105 if needed else 99)
    scene.on_host(600, 700, call=OpCall(name="aten::relu", args=(result,)))
    made = Allocations(
        row=np.arange(1, 21, 2, dtype=np.int32),
        storage=np.arange(101, 111, dtype=np.int64),
        bytes=np.full(10, 40_000, np.int64),
    )
    timeline = msgspec.structs.replace(scene.timeline(), allocations=made)
    found = sure(step_of(timeline, [0] + [1, 2] * 10 + [0]), "host-metrics")
    assert found.where == (["train.py:3"] if needed else ["train.py:2", "train.py:3"])
    assert found.saving_ns.high == pytest.approx(200e3 if needed else 600e3, rel=0.1)


@pytest.mark.parametrize(
    ("function", "counts"),
    [("torch/_tensor.py(1200): __contains__", True), ("torch/nn/utils/clip_grad.py(30): f", False)],
)
def test_methods_of_tensors_read_for_the_script(function: str, counts: bool) -> None:
    scene = Scene(end=500)
    for at in range(10):
        scene.on_host(40 * at, 40 * at + 40, HostKind.PYTHON, function)
        scene.on_host(40 * at, 40 * at + 40, call=OpCall(name="aten::item"))
    scene.on_host(400, 500, call=BIG)
    found = finding(step_of(scene.timeline(), [2] * 20 + [0]), "host-metrics")
    assert (found is not None) == counts
