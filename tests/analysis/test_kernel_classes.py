"""Device time by class of kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.analysis.kernel_classes import (
    by_class,
    classified_share,
    costed_share,
    kernel_class_rows,
    products_are_costed,
)
from boundby.capture import kineto
from boundby.hardware.datasheet_machine import from_datasheet
from boundby.model import UNKNOWN_PRECISION
from boundby.step.device_ops import device_work
from boundby.step.op_record import OpRecord
from tests.capture.kineto_events import event, kernel, launch, step_events, text, write


def test_device_time_is_divided_by_kernel_class_and_costed_share(tmp_path: Path) -> None:
    events = [
        *step_events(),  # addmm of known cost 50 us, relu without shapes 30 us
        launch(103, 80),
        kernel(103, 130, 15, "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(x)0>(y)"),
        launch(104, 90),
        kernel(104, 150, 5, "mystery"),
        launch(105, 95, "cudaMemcpyAsync"),
        event(
            "gpu_memcpy", "Memcpy DtoD", 160, 10, 7, correlation=105, stream=7, device=0, bytes=100
        ),
    ]
    timeline = kineto.read(write(tmp_path, text(events))).timeline()
    machine = from_datasheet("NVIDIA H200", None)
    assert machine is not None
    records, member = device_work(timeline, machine, UNKNOWN_PRECISION)
    rows = {row.kernel_class: row for row in kernel_class_rows(timeline, records, member)}
    assert {name: row.ns for name, row in rows.items()} == {
        "matrix product": 50_000,
        "elementwise": 30_000,
        "attention": 15_000,
        "copy": 10_000,
        "unknown": 5_000,
    }
    assert rows["matrix product"].costed_ns == 50_000
    assert costed_share(rows.values()) == pytest.approx(60 / 110)
    assert classified_share(rows.values()) == pytest.approx(105 / 110)
    assert not products_are_costed(rows.values())  # the attention's cost is unknown
    assert by_class(records).startswith("matrix product 45%, elementwise 27%")


def test_operators_without_shapes_have_the_class_of_their_names() -> None:
    names = ("aten::mm", "aten::mkldnn_convolution", "aten::threshold")
    records = [
        OpRecord(
            name=name, op_class="unknown", bound="unknown", ns=100.0, exposed_ns=100.0, kernels=0
        )
        for name in names
    ]
    assert by_class(records) == "matrix product 33%, convolution 33%, elementwise 33%"
