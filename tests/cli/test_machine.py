import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from boundby.cli import boundby as group
from boundby.cli.outputs import check_writable
from boundby.model import Machine, store
from boundby.model.errors import BoundbyError
from tests.machines import round_machine
from tests.scripts import boundby


def test_missing_torch_is_a_one_line_error_with_its_exit_code(tmp_path: Path) -> None:
    """A package of that name that cannot be imported stands in for none at all."""
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    done = subprocess.run(
        [sys.executable, "-m", "boundby", "machine"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("boundby: measuring this machine needs PyTorch")
    assert "pip install torch" in line


def test_wrong_option_or_command_is_a_one_line_error() -> None:
    for arguments in (("machine", "--fast"), ("machines",)):
        done = boundby(*arguments)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1


def test_only_json_is_written_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("boundby.hardware.obtain", lambda *_, **__: round_machine())
    group.main(["machine", "--json", "-"], standalone_mode=False)
    captured = capsysbinary.readouterr()
    assert msgspec.json.decode(captured.out, type=Machine) == round_machine()
    assert b"Round 1" in captured.err


def test_json_is_written_to_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("boundby.hardware.obtain", lambda *_, **__: round_machine())
    target = tmp_path / "deep" / "machine.json"
    group.main(["machine", "--json", str(target)], standalone_mode=False)
    assert msgspec.json.decode(target.read_bytes(), type=Machine) == round_machine()
    assert "Round 1" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a file system of Linux")
def test_file_that_root_cannot_create_is_reported() -> None:
    with pytest.raises(BoundbyError, match="cannot write"):
        check_writable("/proc/nowhere/page.html")


def test_unwritable_file_is_a_one_line_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BoundbyError, match="cannot write"):
        store.write(round_machine(), blocked / "machine.json")
