"""Usage errors are one line with the correct form."""

import sys
from pathlib import Path

import pytest

from boundby import cli
from boundby.model.errors import OWN_FAILURE

BEHIND = "write the script's own options after its name: boundby run train.py"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("run --bogus train.py", f"no option --bogus for boundby run; {BEHIND} --bogus"),
        ("run --lr 3e-4 train.py", f"no option --lr for boundby run; {BEHIND} --lr"),
        ("run --epochs=3 train.py", f"no option --epochs for boundby run; {BEHIND} --epochs"),
        (
            "run --waarmup 5 train.py",
            f"no option --waarmup for boundby run (did you mean --warmup?); {BEHIND} --waarmup",
        ),
        ("view --bogus x.json", "no option --bogus for boundby view; boundby view --help lists"),
        (
            "view --perfeto x.json",
            "no option --perfeto for boundby view (did you mean --perfetto?)",
        ),
        ("--bogus", "no option --bogus for boundby; boundby --help lists them"),
        ("train.py --lr 1", "to diagnose a script: boundby run train.py"),
        ("mashine", "no command is called mashine; did you mean machine?"),
        ("xyz", "no command is called xyz; boundby --help lists them"),
    ],
)
def test_usage_errors_are_one_line(
    typed: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["boundby", *typed.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"boundby: {told}")


def test_internal_error_is_one_line_with_the_traceback_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("planted")

    monkeypatch.setattr(cli.boundby, "main", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == OWN_FAILURE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("boundby: internal error: LookupError: planted; its traceback")
    assert "LookupError: planted" in Path(line.rpartition(": ")[2]).read_text()
