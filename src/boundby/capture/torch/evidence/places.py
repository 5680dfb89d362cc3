"""The user's lines, named as the profile names them."""

from __future__ import annotations

import functools
import sys
from types import CodeType, FrameType

_MOST_LINES = 4  # display limit
_DEEPEST = 200  # time limit


def user_lines(frame: FrameType | None) -> list[str]:
    """The innermost line of the user's, and those that led to it."""
    found: list[str] = []
    for _ in range(_DEEPEST):
        if frame is None or len(found) >= _MOST_LINES:
            break
        line = user_line(frame.f_code, frame.f_lineno)
        if line is not None and line not in found:
            found.append(line)
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            break  # what runs the script is no part of it
        frame = frame.f_back
    return found


def user_line(code: CodeType, line: int | None) -> str | None:
    """The line; None if it is not the user's. Not cached by code: equal code of two files is equal
    in Python."""
    return user_line_at(code.co_filename, line, code.co_name)


@functools.cache
def user_line_at(file: str, line: int | None, function: str) -> str | None:
    """The same, for a function that is known by its file and name."""
    if line is None:
        return None
    # Imports numpy, which the script may not have done yet when the hooks are installed.
    from boundby.capture.kineto.names import Origin, frame_of

    seen = frame_of(f"{_trimmed(file)}({line}): {function}")
    return seen.source if seen.origin is Origin.USER else None


@functools.cache
def _trimmed(file: str) -> str:
    """The path relative to the folder it is imported from, as torch's profiler shortens it."""
    roots = sorted((f"{root}/" for root in sys.path if root), key=len, reverse=True)
    root = next((root for root in roots if file.startswith(root)), "")
    return file[len(root) :]
