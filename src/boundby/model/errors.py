"""Errors of users and their machines: one class, with an exit code."""

BAD_INPUT = 2  # exit status
CANNOT_MEASURE = 3  # exit status
OWN_FAILURE = 70  # exit status: a bug of boundby
INTERRUPTED = 130  # exit status (128 + SIGINT)


class BoundbyError(Exception):
    """A failure that is explained in one line, without a traceback."""

    def __init__(self, message: str, *, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NotATraceError(BoundbyError):
    """A file of another kind, as they lie beside traces: settings, graphs, tables."""
