"""What the events and names of a profile are: launches, copies, collectives, frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.capture.kineto import names
from boundby.capture.kineto.names import Origin, clean, frame_of
from boundby.model import DeviceKind, HostKind
from tests.capture.kineto_events import (
    Event,
    event,
    kernel,
    launch,
    op,
)
from tests.capture.kineto_timelines import source_of, timeline_of

GENERATED = "c" + "ixwxmaze72dr6y3o5fidpymqpnlgbskwlbmcyfkkatpyhoagsvn"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", HostKind.LAUNCH),
        ("cuLaunchKernelEx", HostKind.LAUNCH),
        ("hipExtModuleLaunchKernel", HostKind.LAUNCH),
        ("hipGraphLaunch", HostKind.LAUNCH),
        ("cudaMemcpyAsync", HostKind.LAUNCH),
        ("cudaMemsetAsync", HostKind.LAUNCH),
        ("cudaStreamSynchronize", HostKind.SYNC),
        ("cudaDeviceSynchronize", HostKind.SYNC),
        ("hipEventSynchronize", HostKind.SYNC),
        ("cuStreamSynchronize", HostKind.SYNC),
        ("cudaMemcpy", HostKind.SYNC),
        ("hipMemcpyWithStream", HostKind.SYNC),
        ("cudaEventRecord", HostKind.RUNTIME),
        ("cudaStreamIsCapturing", HostKind.RUNTIME),
        ("cudaEventQuery", HostKind.RUNTIME),
    ],
)
def test_runtime_calls_are_classified(tmp_path: Path, name: str, kind: HostKind) -> None:
    timeline = timeline_of(tmp_path, [launch(1, 10, name)])
    assert timeline.host.kind.tolist() == [kind]


def test_copy_to_pageable_memory_is_a_sync(tmp_path: Path) -> None:
    copy = "Memcpy DtoH (Device -> Pageable)"
    events = [
        launch(1, 10, "cudaMemcpyAsync"),
        event("gpu_memcpy", copy, 20, 5, correlation=1, stream=7, bytes=4096),
    ]
    timeline = timeline_of(tmp_path, events)
    assert timeline.host.kind.tolist() == [HostKind.SYNC]
    assert timeline.device.kind.tolist() == [DeviceKind.COPY_D2H]
    assert timeline.device.bytes.tolist() == [4096]


@pytest.mark.parametrize(
    ("cat", "name", "kind"),
    [
        ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", DeviceKind.COLLECTIVE),
        ("kernel", "void gemm<float>", DeviceKind.KERNEL),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", DeviceKind.COPY_H2D),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", DeviceKind.COPY_D2D),
        ("gpu_memset", "Memset (Device)", DeviceKind.MEMSET),
    ],
)
def test_device_events_are_classified(
    tmp_path: Path, cat: str, name: str, kind: DeviceKind
) -> None:
    timeline = timeline_of(tmp_path, [event(cat, name, 10, 5, correlation=1, stream=7)])
    assert timeline.device.kind.tolist() == [kind]


def test_collective_has_its_size(tmp_path: Path) -> None:
    size = {"In msg nelems": 1000, "dtype": "BFloat16"}
    timeline = timeline_of(tmp_path, [kernel(1, 0, 5, "ncclDevKernel_AllGather", **size)])
    assert timeline.device.bytes.tolist() == [2000]


@pytest.mark.parametrize(
    "name",
    [
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "torch/utils/data/dataloader.py(700): __next__",
    ],
)
def test_waiting_for_data_is_classified(tmp_path: Path, name: str) -> None:
    cat = "python_function" if "(700)" in name else "user_annotation"
    timeline = timeline_of(tmp_path, [event(cat, name, 0, 10), op("aten::add", 20, 5)])
    assert timeline.host.kind.tolist() == [HostKind.DATA, HostKind.OP]


@pytest.mark.parametrize(
    ("name", "origin", "source"),
    [
        ("train.py(42): main", Origin.USER, "train.py:42"),
        ("/home/me/project/train.py(42): main", Origin.USER, "project/train.py:42"),
        ("<stdin>(1): <module>", Origin.USER, "<stdin>:1"),
        ("torch/nn/functional.py(9): relu", Origin.TORCH, "torch/nn/functional.py:9"),
        ("/x/lib/python3.11/site-packages/torch/a.py(9): b", Origin.TORCH, "torch/a.py:9"),
        ("/x/lib/python3.11/site-packages/timm/a.py(9): b", Origin.LIBRARY, "timm/a.py:9"),
        ("transformers/models/bert.py(9): b", Origin.LIBRARY, "transformers/models/bert.py:9"),
        ("/usr/lib/python3.11/threading.py(1): run", Origin.TORCH, "threading.py:1"),
        ("threading.py(1030): _bootstrap", Origin.TORCH, "threading.py:1030"),
        ("/tmp/torchinductor_me/ab/c.py(5): call", Origin.TORCH, "ab/c.py:5"),
        (f"cache/vx/{GENERATED}.py(814): call", Origin.TORCH, f"cache/vx/{GENERATED}.py:814"),
        ("<built-in method mm of type object>", Origin.NOT_A_FRAME, ""),
        ("nn.Module: Linear_0", Origin.NOT_A_FRAME, ""),
    ],
)
def test_frame_owner_is_user_library_or_torch(name: str, origin: Origin, source: str) -> None:
    assert frame_of(name) == (origin, source)


def test_stacks_recorded_by_old_versions_are_read(tmp_path: Path) -> None:
    stack = "/x/site-packages/torch/nn/a.py(3): forward;main.py(54): <module>"
    given: Event = {"Call stack": stack}
    events = [event("Operator", "aten::add", 0, 10, **given)]
    assert source_of(timeline_of(tmp_path, events), "aten::add") == "main.py:54"


def test_names_are_cleaned_and_cut() -> None:
    assert clean("a\x1b[2Jb") == "a [2Jb"
    assert clean("<add of Tensor object at 0x7fc4e328ea30>") == "<add of Tensor object>"
    assert len(clean("x" * 10**6)) == 4096


@pytest.mark.parametrize(("size", "kind"), [(128, HostKind.LAUNCH), (1 << 20, HostKind.SYNC)])
def test_large_copy_from_pageable_memory_is_a_sync(
    tmp_path: Path, size: int, kind: HostKind
) -> None:
    copy = "Memcpy HtoD (Pageable -> Device)"
    events = [
        launch(1, 10, "cudaMemcpyAsync"),
        event("gpu_memcpy", copy, 20, 5, correlation=1, stream=7, bytes=size),
    ]
    assert timeline_of(tmp_path, events).host.kind.tolist() == [kind]


def test_modules_beside_the_script_are_user_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets").mkdir()
    for name in ("profile.py", "datasets/toy.py"):
        (tmp_path / name).touch()
    names = ("profile.py(3): step", "datasets/toy.py(4): batch")
    assert [frame_of(name).origin for name in names] == [Origin.TORCH, Origin.LIBRARY]
    monkeypatch.syspath_prepend(tmp_path)
    assert [frame_of(name).origin for name in names] == [Origin.USER, Origin.USER]
    others = ("threading.py(3): run", "datasets/load.py(4): load")
    assert [frame_of(name).origin for name in others] == [Origin.TORCH, Origin.LIBRARY]


def test_installed_packages_are_libraries_unless_the_script_has_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, own = tmp_path / "site-packages", tmp_path / "own"
    for folder in (installed, own):
        (folder / "graphs").mkdir(parents=True)
        (folder / "graphs" / "layers.py").touch()
    name = "graphs/layers.py(4): forward"
    assert frame_of(name).origin is Origin.USER
    monkeypatch.syspath_prepend(installed)
    assert frame_of(name).origin is Origin.LIBRARY
    monkeypatch.syspath_prepend(own)
    assert frame_of(name).origin is Origin.USER


def test_installed_commands_that_start_the_script_are_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names._is_launcher.cache_clear()
    (tmp_path / "boundby").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    seen = ["boundby(8): <module>", f"{tmp_path}/boundby(8): <module>", "train(3): main"]
    try:
        assert [frame_of(one).origin for one in seen] == [
            Origin.LIBRARY,
            Origin.LIBRARY,
            Origin.USER,
        ]
    finally:
        names._is_launcher.cache_clear()


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 300, "a" * 300 + ".py", f"/{'a' * 5000}.py"])
def test_names_that_no_file_can_have_are_the_users(name: str) -> None:
    assert frame_of(f"{name}(3): step").origin is Origin.USER
