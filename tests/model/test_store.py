"""Saved files of the present and of the first schema."""

from pathlib import Path

import msgspec
import pytest

from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from tests.diagnoses import full_diagnosis


def test_a_diagnosis_of_schema_1_is_read_with_its_warnings_as_notes(tmp_path: Path) -> None:
    old = msgspec.to_builtins(full_diagnosis())
    texts = [note["text"] for note in old.pop("notes")]
    for piece in old["timeline"]:
        piece["lane"] += "" if piece["lane"] == "idle" else f" {piece.pop('number', 0)}"
    path = tmp_path / "old.json"
    path.write_bytes(msgspec.json.encode({**old, "schema": 1, "warnings": texts}))
    read = store.read(path, Diagnosis, "diagnosis")
    assert [note.text for note in read.notes] == texts
    assert {note.code for note in read.notes} == {"schema-1"}
    assert msgspec.structs.replace(read, notes=full_diagnosis().notes) == full_diagnosis()


def test_a_diagnosis_is_written_as_schema_2_with_coded_notes(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    store.write(full_diagnosis(), path)
    content = msgspec.json.decode(path.read_bytes())
    assert content["schema"] == 2
    assert "warnings" not in content
    assert {"code", "text"} <= content["notes"][0].keys()
    assert store.read(path, Diagnosis, "diagnosis") == full_diagnosis()


@pytest.mark.parametrize("schema", [0, 3, 9])
def test_other_schema_version_is_refused(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(msgspec.json.encode({"schema": schema}))
    with pytest.raises(BoundbyError, match="another version"):
        store.read(path, Diagnosis, "diagnosis")
