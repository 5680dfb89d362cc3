"""Protects a script from failures of boundby's code that runs inside it.

All hooks, notes and marks go through a guard. An error of boundby goes to the owner of the watch,
who ends it; the script's call continues as if it were not watched. Exceptions of the script itself
do not pass here: its own code is called outside.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OnFailure = Callable[[Exception], None]


class Guard:
    """Calls boundby's code. Without `on_failure`, as if the program is boundby's too, errors
    pass."""

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self._on_failure = on_failure

    def do(self, act: Callable[..., Any], *told: Any, otherwise: Any = None) -> Any:
        """The result of `act`; `otherwise` if it failed.

        A request to end is no failure, and passes: it is no `Exception`.
        """
        try:
            return act(*told)
        except Exception as error:
            if self._on_failure is None or _comes_from_a_signal(error):
                raise
            self._hand_over(error, self._on_failure)
        return otherwise

    def _hand_over(self, error: Exception, on_failure: OnFailure) -> None:
        try:
            on_failure(error)
        except Exception:
            # With both tracebacks, in the script's own log: logging itself never raises.
            logging.getLogger("boundby").exception(
                "boundby failed, and so did the report of the failure"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of boundby inside a script: in a line, and in full for developers."""

    line: str
    text: str

    def keep(self, folder: Path | None) -> Path | None:
        """Write everything to a file that is kept: in this folder, or among the temporary ones."""
        try:
            if folder is None:
                folder = Path(tempfile.mkdtemp(prefix="boundby-failure-"))
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "failure.txt"
            with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.text)
        except OSError:
            return None
        return path


def stopped_after(steps: int) -> str:
    return f"observation failed after {steps} step{'' if steps == 1 else 's'} and was stopped"


def failure_of(what: str, errors: Sequence[Exception]) -> Failure:
    """A failure with its effect and reason: the first error names the cause, the others
    followed."""
    lines = str(errors[0]).strip().splitlines()
    words = f"{type(errors[0]).__name__}: {lines[0] if lines else ''}".strip(": ")
    trace = errors[0].__traceback__
    around = traceback.format_stack(trace.tb_frame) if trace is not None else []
    ours, torch = (
        getattr(sys.modules.get(name), "__version__", "not loaded") for name in ("boundby", "torch")
    )
    text = [f"boundby {ours}, python {sys.version.split()[0]}, torch {torch}\n", *around]
    for error in errors:
        text += ["\n", *traceback.format_exception(error)]
    return Failure(line=f"{what}: {words}", text="".join(text))


def _comes_from_a_signal(error: Exception) -> bool:
    """Whether a signal handler of the script raised it during boundby's code, as timeouts do."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frames = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(code in handlers for code in frames)


def _code_of(handler: Any) -> types.CodeType | None:
    called = handler.__call__ if callable(handler) else None
    for function in (handler, getattr(handler, "func", None), called):
        code = getattr(function, "__code__", None)
        if isinstance(code, types.CodeType):
            return code
    return None
