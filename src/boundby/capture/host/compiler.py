"""What torch's compiler reports: compile time, reasons of recompilations and graph breaks.

It is read only if a script has loaded it, and never loaded for that.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from boundby.model.host_counters import CompiledAgain

_COMPILING = ("entire_frame_compile", "entire_backward_compile")
# A reason is a paragraph; its first line is enough.
_MOST_REASONS = 20
_RESUMED = "torch_dynamo_resume_in_"
_LIMIT = "recompile limit"


def compiled_ns() -> float:
    """The compile time of the process so far, backward graphs included."""
    compiler = _compiler()
    if compiler is None:  # called at the end of every step
        return 0.0
    spent = getattr(compiler, "cumulative_time_spent_ns", None) or {}
    return sum(float(spent.get(name, 0.0)) for name in _COMPILING)


def graph_breaks() -> tuple[str, ...]:
    """The reasons of graph breaks, in the compiler's words, each once."""
    counters = getattr(_compiler(), "counters", None) or {}
    words = [*counters.get("graph_break", {}), *counters.get("unimplemented", {})]
    first = dict.fromkeys(line for reason in words if (line := _first_line(reason)))
    return tuple(first)[:_MOST_REASONS]


def graph_break_lines() -> tuple[tuple[str, str], ...]:
    """The user's lines of graph breaks, each with the reason, in order."""
    found: dict[tuple[str, str], None] = {}
    for one in getattr(_compiler(), "graph_break_reasons", None) or ():
        for frame in reversed(getattr(one, "user_stack", None) or ()):
            line = _user_line(frame.filename, frame.lineno, frame.name)
            if line is not None:
                found[line, _first_line(one.reason)] = None
                break
    for seen in _failed():
        line = _user_line(
            getattr(seen, "fail_user_frame_filename", None) or "",
            getattr(seen, "fail_user_frame_lineno", None),
            seen.co_name or "",
        )
        if line is not None:
            found[line, _first_line(seen.fail_reason)] = None
    return tuple(found)[:_MOST_REASONS]


def compiled_again() -> tuple[CompiledAgain, ...]:
    """Functions that were compiled more than once, the most frequent first."""
    times: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for seen in _metrics():
        name = seen.co_name or ""
        # Code after a graph break is compiled again whenever its function is.
        if name.startswith(_RESUMED) or not seen.co_filename:
            continue
        where = _user_line(seen.co_filename, seen.co_firstlineno, name)
        if where is None:
            continue
        times[where] += 1
        reason = getattr(seen, "recompile_reason", None)
        if reason:
            reasons[where] = _first_line(reason)
    return tuple(
        CompiledAgain(where=where, times=count, reason=reasons.get(where, ""))
        for where, count in times.most_common(_MOST_REASONS)
        if count > 1
    )


def gave_up() -> bool:
    """Whether a user's function runs uncompiled: it reached the limit of recompilations, or cannot
    be divided where it breaks, as in a loop."""
    counters = getattr(_compiler(), "counters", None) or {}
    words = [*counters.get("graph_break", {}), *counters.get("unimplemented", {})]
    if any(_LIMIT in str(reason) for reason in words):
        return True
    functions = ((one.co_filename, one.co_firstlineno, one.co_name) for one in _failed())
    return any(_user_line(file or "", line, name or "") for file, line, name in functions)


def _failed() -> Iterator[Any]:
    """Compilations that failed."""
    return (seen for seen in _metrics() if getattr(seen, "fail_type", None))


def _compiler() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _metrics() -> Iterator[Any]:
    metrics = getattr(_compiler(), "get_compilation_metrics", None)
    yield from metrics() if metrics is not None else ()


def _first_line(reason: object) -> str:
    lines = str(reason).strip().splitlines()
    return lines[0].strip() if lines else ""


def _user_line(file: str, line: int | None, function: str) -> str | None:
    # Loads numpy, which the script has loaded by now.
    from boundby.capture.torch.evidence.places import user_line_at

    return user_line_at(file, line, function)
