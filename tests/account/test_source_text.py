"""The text beside a line: all of what begins there."""

from pathlib import Path

import pytest

from boundby.account.source_text import SourceText

CODE = """\
import torch

def forward(self, q, k, x):  # 3
    x = x + 1  # five
    y = (
        q  # the queries
        @ k.T
        + 1
    )
    z = self.attention(
        q,
        mask=None,
    )
    for part in (
        x.relu(),
        y,
    ):
        pass
    return (x
            .relu()
            * 2)
"""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (3, "def forward(self, q, k, x):  # 3"),
        (4, "x = x + 1  # five"),
        (5, "y = q @ k.T + 1"),
        (6, "q @ k.T + 1"),
        (7, "@ k.T"),
        (10, "z = self.attention(q, mask=None)"),
        (14, "for part in ("),
        (15, "x.relu(),"),
        (19, "return x.relu() * 2"),
        (20, ".relu()"),
        (22, None),
        (0, None),
    ],
)
def test_text_at_a_line(tmp_path: Path, line: int, text: str | None) -> None:
    (tmp_path / "model.py").write_text(CODE)
    assert SourceText(["nowhere", str(tmp_path)]).at(f"model.py:{line}") == text


def test_what_is_no_python_is_shown_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'x', (\n  1)\n")
    text = SourceText([str(tmp_path)])
    assert text.at("old.py:1") == "print 'x', ("
    assert text.at("gone.py:1") is None
    assert text.at("<built-in>") is None


def test_a_long_one_is_cut(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(f"x = [\n{'    100,' * 99}\n]\n")
    found = SourceText([str(tmp_path)]).at("long.py:1")
    assert found is not None
    assert len(found) == 160
    assert found.endswith("…")


def test_warnings_about_the_code_are_not_ours_to_give(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "escape.py").write_text("x = '\\d'\n")
    assert SourceText([str(tmp_path)]).at("escape.py:1") == "x = '\\d'"
    assert not recwarn
