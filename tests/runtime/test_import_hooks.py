"""Callbacks when a module is imported: once, right after, and not for a mere look-up."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from boundby.runtime.import_hooks import when_imported


@pytest.fixture
def arrivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    seen: list[ModuleType] = []
    yield seen
    sys.meta_path[:] = before
    sys.modules.pop("guest", None)


def test_callback_runs_once_right_after_import(arrivals: list[ModuleType], tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text("value = 1")
    before = list(sys.meta_path)
    when_imported("guest", arrivals.append)
    spec = importlib.util.find_spec("guest")
    assert spec is not None
    assert spec.loader is not None
    assert "guest" not in sys.modules
    assert arrivals == []
    guest = importlib.import_module("guest")
    assert arrivals == [guest]
    assert sys.meta_path == before
    assert guest.__spec__ is not None
    assert guest.__spec__.loader is guest.__loader__
    assert type(guest.__loader__).__module__ == "_frozen_importlib_external"
    importlib.reload(guest)
    assert arrivals == [guest]


def test_callback_runs_after_a_failed_import_is_retried(
    arrivals: list[ModuleType], tmp_path: Path
) -> None:
    file = tmp_path / "guest.py"
    file.write_text("raise ImportError('not yet')")
    when_imported("guest", arrivals.append)
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module("guest")
    assert arrivals == []
    file.write_text("value = 'longer than before'")
    importlib.invalidate_caches()
    assert arrivals == [importlib.import_module("guest")]


def test_callback_runs_at_once_for_a_loaded_module(arrivals: list[ModuleType]) -> None:
    when_imported("sys", arrivals.append)
    assert arrivals == [sys]


def test_missing_module_still_raises(arrivals: list[ModuleType]) -> None:
    when_imported("guest", arrivals.append)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("guest")
