"""The streams that boundby was started with, whatever the script does to `sys.stdout` and
`sys.stderr`: many programs put a log file there."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class OwnStreams:
    """stdout and stderr at the time when this was made."""

    def __init__(self) -> None:
        self._out, self._err = sys.stdout, sys.stderr

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Print there; the script's streams are back afterwards. One that the script closed cannot
        be used."""
        replaced = sys.stdout, sys.stderr
        if self._out is not None and not self._out.closed:
            sys.stdout = self._out
        if self._err is not None and not self._err.closed:
            sys.stderr = self._err
        try:
            yield
        finally:
            sys.stdout, sys.stderr = replaced


def flush_all() -> None:
    """Flush what the script has printed; what it put in place of a stream may not be able to."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
