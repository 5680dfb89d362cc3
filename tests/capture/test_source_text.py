"""Lines with all of what begins on them, and the functions around them."""

from pathlib import Path
from textwrap import dedent

import pytest

from boundby.capture.source_text import SourceText
from boundby.model.observation import SourceLine

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
def test_source_text_of_a_line_is_read(tmp_path: Path, line: int, text: str | None) -> None:
    (tmp_path / "model.py").write_text(CODE)
    found = SourceText(["nowhere", str(tmp_path)]).at(f"model.py:{line}")
    assert (found.text if found else None) == text


def test_other_text_than_python_is_shown_unchanged(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'x', (\n  1)\n")
    text = SourceText([str(tmp_path)])
    assert text.at("old.py:1") == SourceLine(text="print 'x', (", function=None)
    assert text.at("gone.py:1") is None
    assert text.at("<built-in>") is None


def test_long_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(f"x = [\n{'    100,' * 99}\n]\n")
    found = SourceText([str(tmp_path)]).at("long.py:1")
    assert found is not None
    assert len(found.text) == 160
    assert found.text.endswith("…")


def test_reading_source_gives_no_syntax_warnings(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "escape.py").write_text("x = '\\d'\n")
    assert SourceText([str(tmp_path)]).at("escape.py:1") == SourceLine(
        text="x = '\\d'", function=None
    )
    assert not recwarn


def test_line_has_text_and_enclosing_function(tmp_path: Path) -> None:
    source = """
        import torch
        class Block:
            def forward(self, x):
                def inner(y):
                    return y + 1
                return inner(x)

        loss.backward()
    """
    (tmp_path / "train.py").write_text(dedent(source))
    text = SourceText([str(tmp_path / "nowhere"), str(tmp_path)])
    assert text.at("train.py:2") == SourceLine(text="import torch", function=None)
    assert text.at("train.py:6") == SourceLine(text="return y + 1", function="Block.forward.inner")
    assert text.at("train.py:7") == SourceLine(text="return inner(x)", function="Block.forward")
    assert text.at("train.py:9") == SourceLine(text="loss.backward()", function=None)
    for nothing in ("train.py:8", "train.py:99", "train.py:0", "other.py:1", "unknown"):
        assert text.at(nothing) is None
