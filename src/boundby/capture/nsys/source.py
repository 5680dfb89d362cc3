"""Observations from Nsight Systems' sqlite exports."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from boundby.capture.kineto.source import observe_trace
from boundby.capture.kineto.trace import Trace, trace_of_events
from boundby.capture.nsys.events import GRAPHS, device_properties, export_events
from boundby.capture.nsys.tables import Export
from boundby.model import Note
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation

_MAGIC = b"SQLite format 3\x00"
_RECORD = "profile with nsys profile --trace cuda,nvtx"
_WHOLE_GRAPHS = (
    "replayed graphs were recorded as a whole, so the kernels in them are unknown: profile with "
    "nsys profile --cuda-graph-trace node"
)


class NsysSource:
    """`nsys export --type sqlite`: kernels, copies, runtime calls and NVTX ranges."""

    name = "Nsight Systems sqlite export"

    def recognises(self, path: Path) -> bool:
        """A sqlite file with Nsight Systems' texts. A damaged file counts too."""
        try:
            with path.open("rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    return False
            with contextlib.closing(Export(path)) as export:
                return bool(export.columns("StringIds"))
        except OSError:
            return False
        except (BoundbyError, sqlite3.Error):
            return True

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        trace = read(path)
        return [observe_trace(trace, index=index, wall_ns=wall_ns, source="nsys")]


def read(path: Path) -> Trace:
    """The steps of an export: NVTX ranges named as steps, or what repeats."""
    try:
        with contextlib.closing(Export(path)) as export:
            events = export_events(export)
            if not any(event.cat == "kernel" for event in events):
                raise BoundbyError(f"{path}: no kernels in this export: {_RECORD}")
            trace = trace_of_events(path, [events], device_properties(export))
            if export.columns(GRAPHS):
                trace.notes.append(Note(code="whole-graphs", text=_WHOLE_GRAPHS))
            return trace
    except sqlite3.Error as error:
        raise BoundbyError(f"{path}: a damaged Nsight Systems export: {error}") from None
