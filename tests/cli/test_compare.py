"""boundby compare: exit codes for CI, files for people."""

import json
from pathlib import Path

import click
import pytest

from boundby.cli.compare import parse_share
from boundby.model import store
from tests.analysis.test_comparison import around, with_steps
from tests.diagnoses import SYNCS
from tests.scripts import boundby


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """The second is 10% slower."""
    paths = tmp_path / "old.json", tmp_path / "new.json"
    for path, middle in zip(paths, (10e6, 11e6), strict=True):
        store.write(with_steps(around(middle, 0.01)), path)
    return str(paths[0]), str(paths[1])


@pytest.mark.parametrize(
    ("tolerance", "swapped", "code"),
    [("5%", False, 1), ("0.2", False, 0), ("10.5%", False, 0), ("5%", True, 0)],
)
def test_slowdown_beyond_tolerance_exits_with_1(
    pair: tuple[str, str], tolerance: str, swapped: bool, code: int
) -> None:
    before, after = pair[::-1] if swapped else pair
    done = boundby("compare", "--fail-over", tolerance, before, after)
    assert done.returncode == code, done.stderr
    assert ("more than the" in done.stderr) == bool(code)


def test_without_tolerance_exit_code_is_zero(pair: tuple[str, str]) -> None:
    done = boundby("compare", *pair)
    assert done.returncode == 0
    assert done.stdout.startswith("10.0% slower")


def test_comparison_is_written_as_page_and_json(pair: tuple[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = boundby("compare", "--html", str(page), "--json", "-", "--quiet", *pair)
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(done.stdout)["ratio"]["expected"] == pytest.approx(1.1)


def test_traces_are_compared() -> None:
    done = boundby("compare", str(SYNCS), str(SYNCS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("as fast as before")
    assert "under a profiler" in done.stdout


def test_common_spellings_of_shares_are_accepted() -> None:
    assert parse_share("5%") == pytest.approx(0.05)
    assert parse_share("0.05") == pytest.approx(0.05)
    for wrong in ("five", "-5%", "%", ""):
        with pytest.raises(click.BadParameter):
            parse_share(wrong)


def test_invalid_tolerance_is_a_one_line_error(pair: tuple[str, str]) -> None:
    done = boundby("compare", "--fail-over", "fast", *pair)
    assert done.returncode == 2
    assert "'fast' is not a share" in done.stderr
