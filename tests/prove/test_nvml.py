"""Counting devices while packages are imported leaves nothing open."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.prove import gpu_clocks as nvml  # noqa: E402

ROOT = Path(__file__).parents[2]


class Library:
    """NVML as far as torch asks it: every `nvmlInit` wants its `nvmlShutdown`."""

    opened = 0
    fails = False

    def __init__(self, name: str) -> None:
        assert name == "libnvidia-ml.so.1"

    def nvmlInit(self) -> int:  # noqa: N802
        Library.opened += not self.fails
        return int(self.fails)

    def nvmlShutdown(self) -> int:  # noqa: N802
        Library.opened -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, length: int) -> int:  # noqa: N802
        buffer.value = b"GPU-1"
        return 0


@pytest.mark.filterwarnings("ignore:Can't initialize NVML")
def test_each_question_is_followed_by_a_shutdown_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Library)
    monkeypatch.setattr(Library, "opened", 1)  # by a package for itself: its own business
    asking = torch.cuda._raw_device_count_nvml
    with nvml.closed_after_counting():
        assert torch.cuda._raw_device_count_nvml() == 1
        assert torch.cuda._raw_device_uuid_nvml() == ["GPU-1"]
        assert Library.opened == 1
        monkeypatch.setattr(Library, "fails", True)
        assert torch.cuda._raw_device_count_nvml() == -1
        assert torch.cuda._raw_device_uuid_nvml() is None
        assert Library.opened == 1
    assert torch.cuda._raw_device_count_nvml is asking


# What is open of the driver, and which threads run.
LEFT = """
    import os
    from pathlib import Path
    def left():
        opened = [os.path.realpath(handle) for handle in Path("/proc/self/fd").iterdir()]
        threads = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
        return sorted(one for one in opened if one.startswith("/dev/nvidia")), sorted(threads)
"""
BARE = """
    import ctypes
    import torch
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit() == 0 and library.nvmlShutdown() == 0
    print(left())
"""
COUNTED = """
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    from boundby.prove.gpu_clocks import closed_after_counting
    with closed_after_counting():
        import torch
        assert torch.cuda.is_available() and torch.cuda.device_count() > 0
    print(left())
"""


@pytest.mark.gpu
def test_a_count_leaves_no_more_open_than_the_library_does_that_is_asked() -> None:
    """In processes of their own: this one may have opened the driver for good.

    NVML 580 leaves a thread of the driver behind, whoever asks it.
    """
    path = f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"
    bare, counted = (
        subprocess.run(
            [sys.executable, "-c", dedent(LEFT) + dedent(code)],
            env={**os.environ, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for code in (BARE, COUNTED)
    )
    assert counted == bare
