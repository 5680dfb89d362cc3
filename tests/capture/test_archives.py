"""Zipped traces, and traces at URLs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import boundby
from boundby.capture import sources
from boundby.capture.remote import local_copy
from boundby.model.errors import BoundbyError

SYNCS = Path(__file__).parents[1] / "data" / "h200" / "bad_mlp_syncs.json.gz"


def test_traces_in_an_archive_are_found_by_content(tmp_path: Path) -> None:
    path = tmp_path / "traces.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(SYNCS, "run/rank0.json.gz")
        archive.writestr("run/readme.txt", "not a trace")
        archive.write(SYNCS, "run/rank1")
    first, second = sources.observe(path)
    assert first.target == f"{path}/run/rank0.json.gz"
    assert first.timeline is not None
    assert second.timeline is not None
    assert first.timeline.wall_ns == second.timeline.wall_ns
    diagnosis = boundby.load(path)
    assert [row.name for row in diagnosis.ranks] == ["rank0.json.gz", "rank1"]


def test_archive_without_traces_or_damaged_gives_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "not a trace " * 100)
    with pytest.raises(BoundbyError, match="no traces in this archive"):
        sources.observe(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + whole[44:])
    with pytest.raises(BoundbyError, match="a damaged archive"):
        sources.observe(path)
    path.write_bytes(whole[:60])
    with pytest.raises(BoundbyError, match="a damaged archive"):
        sources.observe(path)


def test_url_is_downloaded(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    copy = local_copy(SYNCS.as_uri())
    assert copy.name == SYNCS.name
    assert copy.read_bytes() == SYNCS.read_bytes()
    with pytest.raises(BoundbyError, match="cannot read file://"):
        local_copy((tmp_path / "none.json").as_uri())
    with pytest.raises(BoundbyError, match="cannot read nowhere://"):
        local_copy("nowhere://bucket/trace.json")
