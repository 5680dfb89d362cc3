"""Fixes written into sources: each case is a marked source and its expected result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boundby.faults import FAULTS
from boundby.prove.patching.patch import WRITERS, SourcePatch, write_patch
from tests.prove.patching.marked import read_marks

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
_BETWEEN = "\n=====\n"


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boundby.fixes.loaders.cores_at_hand", lambda: 4)


def patched(folder: Path, source: bytes, name: str = "train.py") -> SourcePatch:
    path = folder / name
    path.write_bytes(source)
    sites, fixes = read_marks(path)
    return write_patch(sites, fixes, script=path, folder=folder)


def applied(folder: Path, patch: SourcePatch, name: str = "train.py") -> bytes:
    """The source after `git apply`."""
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=patch.text(),
        cwd=folder,
        check=True,
    )
    return (folder / name).read_bytes()


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_source_becomes_what_is_expected(case: Path, tmp_path: Path) -> None:
    before, _, after = case.read_text(encoding="utf-8").partition(_BETWEEN)
    patch = patched(tmp_path, before.encode() + b"\n")
    result = applied(tmp_path, patch) if patch.diff else before.encode() + b"\n"
    manual = "".join(f"#! {step.fix}: {step.why}\n" for step in patch.manual)
    assert result.decode() + manual == after


_STATEMENT = b"opt = torch.optim.SGD(model.parameters(), lr=1)  #@ optimizer SGD"


@pytest.mark.parametrize(
    "source",
    [
        b"#@ fixes fused on cpu\nimport torch\n" + _STATEMENT,
        b"#@ fixes fused on cpu\r\nimport torch\r\n" + _STATEMENT + b"\r\nlast = 1",
        b"\xef\xbb\xbf#@ fixes fused on cpu\nimport torch\nx = '\xc3\xa9\xe2\x80\xa8'\n"
        + _STATEMENT,
        b"#@ fixes fused on cpu\nimport torch\n\x0c\nif 1:\n\tx = '''\r\n'''\n\t"
        + _STATEMENT
        + b"\n",
    ],
    ids=["no last newline", "CRLF", "byte order mark and line separators", "tabs and form feeds"],
)
def test_patch_changes_only_the_argument(source: bytes, tmp_path: Path) -> None:
    patch = patched(tmp_path, source)
    assert applied(tmp_path, patch) == source.replace(b"lr=1)", b"lr=1, fused=True)")
    assert patch.sources[tmp_path / "train.py"] == (tmp_path / "train.py").read_bytes()


@pytest.mark.parametrize("name", ["my script.py", "träin.py", 'a"b.py', "folder/train.py"])
def test_file_names_quoted_by_git_are_patched(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    source = b"#@ fixes fused on cpu\nimport torch\n" + _STATEMENT + b"\n"
    patch = patched(tmp_path, source, name)
    assert b"fused=True" in applied(tmp_path, patch, name)


def test_paths_begin_at_the_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "sub"
    folder.mkdir()
    source = b"#@ fixes fused on cpu\nimport torch\n" + _STATEMENT + b"\n"
    patch = patched(folder, source)
    assert patch.root == tmp_path
    assert b"fused=True" in applied(tmp_path, patch, "sub/train.py")


def test_unparsable_file_is_a_manual_step(tmp_path: Path) -> None:
    source = b"#@ fixes fused autocast on cpu\ndef f(:\n" + _STATEMENT + b"\n"
    patch = patched(tmp_path, source)
    assert patch.diff == b""
    assert {step.fix for step in patch.manual} == {"fused", "autocast"}


def test_manual_steps_use_the_terms_of_the_framework(tmp_path: Path) -> None:
    case = Path(__file__).parent / "cases" / "trainer_with_options.txt"
    patch = patched(tmp_path, case.read_bytes().partition(_BETWEEN.encode())[0])
    (step,) = patch.manual
    assert step.change == "--bf16, or TrainingArguments(bf16=True)"
    assert patch.text().startswith(b"# autocast, by hand: --bf16")


def test_every_fix_that_can_be_found_is_written_or_known_as_a_manual_step() -> None:
    found = {fix.name for fault in FAULTS for fix in fault.fixes}
    by_hand = {"cuda-graphs", "checkpoints", *(name for name in found if name.startswith("jax-"))}
    assert found == {*WRITERS, *by_hand}
