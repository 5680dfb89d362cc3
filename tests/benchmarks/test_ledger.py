"""The ledgers of benchmarks/: which rows count, and which documents they make."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("BOUNDBY_COMMIT", "abc1234")
    sys.modules.pop("ledger", None)
    return __import__("ledger")


def test_newest_row_of_each_key_is_used(ledger: ModuleType, tmp_path: Path) -> None:
    kept = ledger.Ledger("made", key=("device", "name"), folder=tmp_path / "new")
    assert kept.rows() == [] and kept.newest() == {}
    for wall in (1, 2):
        kept.append({"name": "bert", "device": "one", "wall": wall})
    kept.append({"name": "bert", "device": "other", "wall": 3})
    assert [row["wall"] for row in kept.rows()] == [1, 2, 3]
    assert {key: row["wall"] for key, row in kept.newest().items()} == {
        ("one", "bert"): 2,
        ("other", "bert"): 3,
    }


def test_row_has_its_commit_and_keeps_an_explicit_device(
    ledger: ModuleType, tmp_path: Path
) -> None:
    kept = ledger.Ledger("made", key=("device",), folder=tmp_path)
    written = kept.append({"device": "a diagnosis's"})
    assert written == {"commit": "abc1234", "device": "a diagnosis's"}
    assert json.loads(kept.path.read_text()) == written


@pytest.mark.parametrize(
    ("module", "name"),
    [("accounts", "accounts"), ("predictions_table", "predictions"), ("proofs_table", "proofs")],
)
def test_every_benchmark_renders_its_document_from_its_ledger(
    module: str, name: str, tmp_path: Path
) -> None:
    code = (
        f"import {module} as b; from pathlib import Path;"
        f" b.ROOT, b.DOCUMENT = Path({str(tmp_path)!r}), Path({str(tmp_path / 'made.md')!r});"
        " b.table()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "benchmarks", check=True)
    made, committed = tmp_path / "made.md", ROOT / "docs" / f"{name}.md"
    if committed.exists():
        assert made.read_text() == committed.read_text()
    else:
        assert made.read_text().startswith("# ")
