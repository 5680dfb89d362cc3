"""The files that an observation can be made from: one entry per format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from boundby.capture.archives import ZipSource
from boundby.capture.kineto.source import KinetoSource, head_of
from boundby.capture.nsys.source import NsysSource
from boundby.capture.rocprof.source import RocprofSource
from boundby.capture.saved import SavedSource
from boundby.capture.xplane.source import XplaneSource
from boundby.model.errors import BoundbyError, NotATraceError

if TYPE_CHECKING:
    from boundby.model.observation import Observation


class Source(Protocol):
    """A file format."""

    @property
    def name(self) -> str:
        """The name of its files in messages: "torch profiler trace"."""

    def recognises(self, path: Path) -> bool:
        """Whether the file has this format, by its content."""

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        """One observation per rank in the file.

        `index` is the number of the step, by default that of median duration. `wall_ns` is the time
        of a step without a profiler, if the user knows it.
        """


# In the order in which they are tried.
_PLAIN: list[Source] = [
    SavedSource(),
    RocprofSource(),
    KinetoSource(),
    NsysSource(),
    XplaneSource(),
]
SOURCES: list[Source] = [ZipSource(_PLAIN), *_PLAIN]
_NSYS_REPORTS = (".nsys-rep", ".qdrep")


def source_of(path: Path, sources: Sequence[Source] = SOURCES) -> Source:
    """Return the source that reads a file."""
    _check_readable(path)
    for source in sources:
        if source.recognises(path):
            return source
    if path.name.endswith(_NSYS_REPORTS):
        export = f"nsys export --type sqlite {path.name}"
        raise BoundbyError(f"{path}: export it first: {export}")
    known = ", ".join(source.name for source in sources)
    kind = NotATraceError if head_of(path)[:1] == b"{" else BoundbyError
    raise kind(f"{path}: not a format that boundby reads ({known})")


def _check_readable(path: Path) -> None:
    """Raise an error that says why a path cannot be read, if it cannot."""
    try:
        if path.is_dir():
            raise BoundbyError(f"{path}: a folder, not a trace file")
        size = path.stat().st_size
        if not path.is_file():
            raise BoundbyError(f"{path}: a pipe or a device: save it as a file first")
        path.open("rb").close()
    except FileNotFoundError:
        raise BoundbyError(f"{path}: no such file") from None
    except OSError as error:
        raise BoundbyError(f"{path}: cannot be read: {error.strerror}") from None
    if not size:
        raise NotATraceError(f"{path}: the file is empty")


def observe(
    path: Path, *, index: int | None = None, wall_ns: float | None = None
) -> list[Observation]:
    """Read a file of any known format."""
    return source_of(path).observe(path, index=index, wall_ns=wall_ns)


def is_trace(path: Path) -> bool:
    """Whether some source reads the file."""
    return path.is_file() and any(source.recognises(path) for source in SOURCES)
