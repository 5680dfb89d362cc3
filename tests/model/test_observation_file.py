"""Saved observations."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from boundby.capture import sources
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation
from boundby.model.observation_file import read_observation, write_observation

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize("name", ["h200/bad_mlp_syncs.json.gz", "xplane/sync_host.xplane.pb.gz"])
def test_observation_round_trips_through_its_file(tmp_path: Path, name: str) -> None:
    (observed,) = sources.observe(DATA / name)
    path = tmp_path / "observation.bin"
    write_observation(observed, path)
    assert path.stat().st_size < (DATA / name).stat().st_size
    (again,) = sources.observe(path)
    assert _same(observed, again)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a saved observation"),
        (b"boundby observation 99\n", "another version"),
        (b"boundby observation 1\nxyz", "is damaged"),
        (b"boundby observation 1\n" + zlib.compress(b"\x81\xa1a\x01"), "is damaged"),
    ],
)
def test_damaged_file_is_a_one_line_error(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "observation.bin"
    path.write_bytes(content)
    with pytest.raises(BoundbyError, match=complaint):
        read_observation(path)


def test_truncated_file_is_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "observation.bin"
    write_observation(Observation(source="kineto", framework="torch"), path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(BoundbyError, match="is damaged"):
        read_observation(path)


def test_a_saved_observation_has_one_step(tmp_path: Path) -> None:
    path = tmp_path / "observation.bin"
    write_observation(Observation(source="kineto", framework="torch"), path)
    with pytest.raises(BoundbyError, match="one step"):
        sources.observe(path, index=1)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, msgspec.Struct):
        fields = one.__struct_fields__
        return type(one) is type(other) and all(
            _same(getattr(one, field), getattr(other, field)) for field in fields
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
