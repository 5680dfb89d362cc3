"""Unified diffs of bytes for `git apply`: any line ending, encoding and file name."""

from __future__ import annotations

import difflib

_NO_NEWLINE = b"\\ No newline at end of file\n"
# Characters of a file name that git writes as escapes, in quotes.
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def unified_diff(name: str, before: bytes, after: bytes) -> bytes:
    """The change of one file; empty if nothing changed.

    `name`: the file's path relative to where the diff is applied, with forward slashes.
    """
    if before == after:
        return b""
    # Latin-1 maps every byte to one character and back, so any encoding passes unchanged.
    lines = difflib.unified_diff(
        _lines(before), _lines(after), fromfile="FROM", tofile="TO", lineterm="\n"
    )
    next(lines), next(lines)
    old, new = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    # As git does: a name with a space ends in a tab, or a date could follow it.
    tab = "\t" if " " in name else ""
    head = f"diff --git {old} {new}\n--- {old}{tab}\n+++ {new}{tab}\n".encode()
    return head + b"".join(map(_written, lines))


def _lines(content: bytes) -> list[str]:
    """Split at line feeds only, as git does."""
    return [f"{line}\n" for line in content.decode("latin-1").split("\n")[:-1]] + _rest(content)


def _rest(content: bytes) -> list[str]:
    last = content.rpartition(b"\n")[2].decode("latin-1")
    return [last] if last else []


def _written(line: str) -> bytes:
    encoded = line.encode("latin-1")
    return encoded if encoded.endswith(b"\n") else encoded + b"\n" + _NO_NEWLINE


def _quoted(name: str) -> str:
    escaped = "".join(_ESCAPES.get(char, char) for char in name)
    return f'"{escaped}"' if escaped != name else name
