"""Counting devices without leaving the driver open.

torch can ask NVML instead of the driver, so that a process may still be forked. But it never ends
what it has begun there, and NVML keeps `/dev/nvidiactl` open until then.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives

_LIBRARY = "libnvidia-ml.so.1"  # as torch loads it
_QUESTIONS = ("_raw_device_count_nvml", "_raw_device_uuid_nvml")


def closed_after_counting() -> AbstractContextManager[None]:
    """Each question of torch's ends with the shutdown that it owes.

    NVML counts who has begun: what a package has begun for itself goes on.
    """
    return when_torch_arrives(_arrived)


def _arrived(torch: Any, swaps: PatchSet) -> None:
    for name in _QUESTIONS:
        swaps.swap(torch.cuda, name, _shutting_down)


def _shutting_down(question: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(question)
    def asked() -> Any:
        answer = question()
        # An answer means that it had begun; these stand for none.
        if answer not in (None, -1):
            ctypes.CDLL(_LIBRARY).nvmlShutdown()
        return answer

    return asked
