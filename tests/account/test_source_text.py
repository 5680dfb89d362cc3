"""Lines, and the functions around them."""

from pathlib import Path
from textwrap import dedent

from boundby.account.source_text import SourceText


def test_a_line_has_its_text_and_the_function_around_it(tmp_path: Path) -> None:
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
    assert text.at("train.py:2") == ("import torch", None)
    assert text.at("train.py:6") == ("return y + 1", "Block.forward.inner")
    assert text.at("train.py:7") == ("return inner(x)", "Block.forward")
    assert text.at("train.py:9") == ("loss.backward()", None)
    for nothing in ("train.py:8", "train.py:99", "train.py:0", "other.py:1", "unknown"):
        assert text.at(nothing) is None


def test_what_is_no_python_has_lines_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print 'two'\ndef f(:\n")
    assert SourceText([str(tmp_path)]).at("train.py:1") == ("print 'two'", None)
