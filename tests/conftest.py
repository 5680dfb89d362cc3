"""Tests marked gpu skip, with a reason, where torch finds no CUDA device."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from boundby.hardware import onednn

if TYPE_CHECKING:
    from tests.browser import Browser

# How long an example takes says nothing on a machine that others use too.
settings.register_profile("boundby", deadline=None)
settings.load_profile("boundby")

# A shell without job control starts commands in its background with interrupts ignored, and every
# process that a test starts and interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _cuda_is_available() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if "gpu" in item.keywords]
    if marked and not _cuda_is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def onednn_setting_is_restored() -> Iterator[None]:
    """torch switches it off for good where a CPU cannot multiply some dtype."""
    if "torch" not in sys.modules:
        yield
        return
    with onednn.setting_restored():
        yield


@pytest.fixture(autouse=True)
def no_compiled_code_stays() -> Iterator[None]:
    """What one test compiles keeps evidence about modules from being collected in the next."""
    yield
    if (frames := sys.modules.get("torch._dynamo.convert_frame")) and frames.output_codes.seen_ids:
        sys.modules["torch._dynamo"].reset()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests that need one; they skip, with a reason, where there is none."""
    pytest.importorskip("selenium")
    from tests.browser import Browser

    opened = Browser()
    yield opened
    opened.close()
