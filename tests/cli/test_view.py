"""boundby view and the options every verb has for pages and traces."""

import json
from pathlib import Path

import msgspec
import pytest

from boundby import load
from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from tests.diagnoses import SYNCS, full_diagnosis
from tests.scripts import boundby


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "step.json"
    store.write(full_diagnosis(), path)
    return path


def test_written_files_are_named(saved: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    done = boundby("view", "--html", str(page), "--perfetto", str(trace), str(saved))
    assert done.stderr == (
        f"boundby: the trace is {trace}; ui.perfetto.dev shows it\nboundby: the page is {page}\n"
    )
    quiet = boundby("view", "--html", str(page), "--perfetto", str(trace), "--quiet", str(saved))
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_saved_diagnosis_is_shown(saved: Path) -> None:
    done = boundby("view", str(saved))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(full_diagnosis()).strip()


def test_saved_diagnosis_becomes_page_trace_and_json(saved: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "deep" / "page.html", tmp_path / "trace.json"
    done = boundby(
        "view", "--html", str(page), "--perfetto", str(trace), "--json", "-", "--quiet", str(saved)
    )
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    assert msgspec.json.decode(done.stdout, type=Diagnosis) == full_diagnosis()


def test_without_display_open_prints_path_of_page(saved: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = boundby("view", "--open", "--html", str(page), "--quiet", str(saved))
    assert done.returncode == 0
    assert done.stderr.strip() == f"boundby: no display here; the page is {page.resolve()}"
    alone = boundby("view", "--open", "--quiet", str(saved))
    kept = Path(alone.stderr.rsplit(" ", 1)[-1].strip())
    assert kept.read_text().startswith("<!doctype html>")
    kept.unlink()
    kept.parent.rmdir()


def test_with_display_the_browser_opens(saved: Path, tmp_path: Path) -> None:
    """BROWSER is the program that webbrowser starts: here, a script that records its argument."""
    asked, page = tmp_path / "asked", tmp_path / "page.html"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}\n')
    browser.chmod(0o755)
    done = boundby(
        *("view", "--open", "--html", str(page), "--quiet", str(saved)),
        DISPLAY=":9",
        BROWSER=f"{browser} %s",
    )
    assert done.returncode == 0, done.stderr
    assert asked.read_text().strip() == page.resolve().as_uri()


def test_trace_is_diagnosed_and_has_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = boundby("trace", "--html", str(page), "--quiet", str(SYNCS))
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 500_000
    assert boundby("view", str(SYNCS)).stdout.startswith("Overhead-bound")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{}", "not a torch profiler trace"), ('{"schema": 9}', "another version"), ("", "diagnosis")],
)
def test_unreadable_file_is_a_one_line_error(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(content)
    done = boundby("view", str(path))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert complaint in line


def test_saved_diagnosis_is_loaded_from_python(saved: Path) -> None:
    assert load(saved) == full_diagnosis()


def test_missing_file_is_a_one_line_error() -> None:
    done = boundby("view", "nowhere.json")
    assert done.returncode == 2
    assert "cannot read nowhere.json" in done.stderr
