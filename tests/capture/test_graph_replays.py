"""Kernels of a graph get back the operators that its capture recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from boundby import ops as costs
from boundby.analysis.account import attribute_step
from boundby.capture import kineto
from boundby.capture.torch.graph_replays import Operator, Recording, align, attach_operators
from boundby.model import DeviceKind, OpCall, Tensor, Timeline
from boundby.step.op_record import OpRecord
from tests.capture.graphed import as_graph, operators_behind, recording_of
from tests.capture.kineto_events import DATA, SHARED
from tests.machines import round_machine

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, float>"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"


def step(name: str) -> Timeline:
    path = DATA / f"{name}.json.gz"
    if not path.exists():
        path = SHARED / f"{name}.json.gz"
    if not path.exists():
        path = SHARED / "h200" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"needs {name}")
    trace = kineto.read(path)
    return trace.timeline(len(trace.steps) // 2)


def product(rows: int, parent: int = -1) -> Operator:
    a = Tensor(shape=(rows, 64), dtype="bfloat16", strides=(64, 1))
    b = Tensor(shape=(64, 64), dtype="bfloat16", strides=(64, 1))
    return Operator("aten::mm", OpCall(name="aten::mm", args=(a, b)), parent)


def other(name: str, parent: int = -1) -> Operator:
    x = Tensor(shape=(8, 64), dtype="float32", strides=(64, 1))
    return Operator(name, OpCall(name=name, args=(x, x)), parent)


@pytest.mark.parametrize(
    ("name", "least", "most_wrong"),
    [
        ("bad_mlp_syncs", 0.99, 0.0),
        ("bert_large_bf16_compiled", 0.999, 0.0),
        ("bert_large_bf16_eager", 0.99, 0.001),
        ("bert_base_b1_overhead", 0.98, 0.001),
        ("gpt2xl_decode", 0.99, 0.001),
    ],
)
def test_kernels_of_replayed_steps_get_their_operators(
    name: str, least: float, most_wrong: float
) -> None:
    timeline = step(name)
    recording, place = recording_of(timeline)
    graph = as_graph(timeline)
    names = [graph.names[number] for number in graph.device.name]
    sized = frozenset(name for name in names if name.startswith("Mem"))
    found = align(names, recording.operators, optional=sized).operator
    really = np.array(operators_behind(timeline, place))
    kernels = graph.device.kind == DeviceKind.KERNEL
    times = np.where(kernels, graph.device.duration_ns, 0)
    right = times[found == really].sum() / times.sum()
    wrong = times[(found >= 0) & (found != really)].sum() / times.sum()
    assert right >= least
    assert wrong <= most_wrong


@pytest.mark.parametrize("name", ["bad_mlp_syncs", "bert_large_bf16_compiled"])
def test_graph_costs_equal_those_of_eager_step(name: str) -> None:
    timeline = step(name)
    recording, _ = recording_of(timeline)
    machine = round_machine()
    graph = attach_operators(as_graph(timeline), {4: recording}, [4], {})
    before = attribute_step(timeline, machine, wall_ns=float(timeline.wall_ns)).op_records
    after = attribute_step(graph, machine, wall_ns=float(timeline.wall_ns)).op_records

    assert _total(after, "flops") == pytest.approx(_total(before, "flops"), rel=0.005)
    # Copies from and to the host are not in the graph. What a memset fills is its operator's
    # outside of one, and its own inside.
    assert _total(after, "bytes") == pytest.approx(_total(before, "bytes"), rel=0.01)
    # A trace leaves the types of listed tensors out, so that some have no cost in either.
    assert _unknown(after) == pytest.approx(_unknown(before), abs=0.05)
    assert {work.name for work in after} >= {"aten::mm", "aten::addmm"}


def _total(op_records: Sequence[OpRecord], what: str) -> float:
    found = [
        work.cost for work in op_records if work.cost is not None and work.bound != "host_link"
    ]
    return sum(cost.total_flops if what == "flops" else cost.bytes for cost in found)


def _unknown(op_records: Sequence[OpRecord]) -> float:
    total = sum(work.ns for work in op_records)
    return sum(work.ns for work in op_records if work.bound == "unknown") / total


def test_compiled_kernel_has_its_source_line() -> None:
    timeline = step("bert_large_bf16_compiled")
    name = next(name for name in timeline.names if name.startswith("triton_poi_fused_gelu"))
    recording, _ = recording_of(timeline)
    graph = attach_operators(as_graph(timeline), {1: recording}, [1], {name: "model.py:12"})
    op_records = attribute_step(graph, round_machine(), wall_ns=1e9).op_records
    assert {graph.sources[work.source] for work in op_records if work.name == name} == {
        "model.py:12"
    }


def test_second_kernel_of_a_matmul_shares_its_cost() -> None:
    found = align([GEMM, REDUCE, GEMM], [product(8), product(16)]).operator
    assert found.tolist() == [0, 0, 1]


def test_outer_operator_launches_after_inner_operators() -> None:
    operators = [other("aten::native_layer_norm"), other("aten::add", 0), other("aten::add")]
    norm = "void at::native::vectorized_layer_norm_kernel<float, float, false>"
    assert align([ADD, norm, ADD], operators).operator.tolist() == [1, 0, 2]


def test_ambiguous_alignment_gives_no_operator() -> None:
    # One of two additions of different size launched nothing; it is not known which.
    smaller = other("aten::add")
    larger = replace(smaller, call=product(4096).call)
    assert align([ADD], [smaller, larger]).operator.tolist() == [-1]
    assert align([ADD], [smaller, smaller]).operator.tolist() in ([0], [1])


def test_kernel_without_matching_operator_is_unknown() -> None:
    found = align([GEMM, "my_own_kernel", GEMM], [product(8), product(16)])
    assert found.operator.tolist() == [0, -1, 1]


def one_product(recordings: dict[int, Recording], replayed: list[int] | None) -> list[int]:
    timeline = as_graph(step("bad_mlp_syncs"))
    keep = np.array([GEMM in name or "gemm" in name for name in timeline.names])
    device = timeline.device
    rows = np.flatnonzero(keep[device.name])[:1]
    columns = {
        field: value[rows]
        for field in device.__struct_fields__
        if (value := getattr(device, field)) is not None
    }
    timeline = msgspec.structs.replace(timeline, device=msgspec.structs.replace(device, **columns))
    found = attach_operators(timeline, recordings, replayed, {})
    assert found.device.call is not None
    return [
        found.calls[call].tensors[0].shape[0] if call >= 0 else -1 for call in found.device.call
    ]


def test_recording_of_the_replayed_shapes_is_used() -> None:
    recordings = {rows: Recording((product(rows),)) for rows in (8, 16)}
    assert one_product(recordings, [8]) == [8]
    assert one_product(recordings, [16]) == [16]
    # Where it is not known which: both fit.
    assert one_product(recordings, None) == [-1]
    # A graph whose capture was not seen, alone or among others.
    assert one_product(recordings, [0]) == [-1]
    assert one_product({8: recordings[8]}, [8, 8]) == [8]
    assert one_product({8: recordings[8]}, [8, 0]) == [-1]


def test_recording_of_another_graph_is_not_used() -> None:
    assert one_product({1: Recording((other("aten::gelu"),))}, [1]) == [-1]


def test_operator_costs_use_the_recorded_calls() -> None:
    assert costs.cost(product(8).call) is not None
