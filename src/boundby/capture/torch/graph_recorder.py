"""Records the operators that run while a script captures a CUDA graph.

A replayed graph has no operator names, and captures happen in warm-up, where no profiler of the
device may run, because it slows its process permanently. torch's execution observer works without:
the operators themselves call it, on the host, and it writes their names and arguments to a file.
The legacy profiler runs beside it, also on the host alone: it provides lines, and a compiler's
kernels report their names only while a profiler runs. Nothing of this is active outside of
captures.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import threading
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boundby.capture.process.guard import Guard
from boundby.capture.process.stderr_mute import muted_stderr
from boundby.runtime.patching import PatchSet

# The disk limit of all recordings of a run, about 1 kB per operator: beyond it, later captures are
# not recorded.
_MOST_BYTES = 512 * 1024 * 1024
_NUMBER = "_boundby_number"


class GraphRecorder:
    """Records captures to files and, once requested, which graphs are replayed.

    A failure is kept in `failed`, and nothing more is recorded: captures and replays continue.
    """

    def __init__(self, torch: Any, folder: Path, *, most_bytes: int = _MOST_BYTES) -> None:
        self._torch = torch
        self._folder = folder
        self._left = most_bytes
        self._count = 0
        self._open: _Observation | None = None
        self._graph: Any = None
        self._thread = 0
        self.failed: list[Exception] = []
        self._do = Guard(self._give_up).do
        # The graphs replayed in each step so far; None while not requested.
        self.replays: list[list[int]] | None = None
        self._replays: list[list[int]] = []

    def capture_began(self, graph: Any) -> None:
        """A graph's capture has begun on this thread."""
        self._do(self._begin, graph)

    def capture_ends(self, graph: Any) -> None:
        """The capture is about to end."""
        if self._open is not None and graph is self._graph:
            self._do(self._end)

    def replayed(self, graph: Any) -> None:
        self._do(self._note, graph)

    def _begin(self, graph: Any) -> None:
        if hasattr(graph, _NUMBER):
            setattr(graph, _NUMBER, 0)  # captured again: the old recording is obsolete
        if self._open is not None or self._left <= 0:
            return
        self._count += 1
        self._open, self._graph = _Observation(self._torch, self._path(self._count)), graph
        self._thread = threading.get_ident()
        if not self._open.begin():
            self._open = self._graph = None

    def _end(self, *, whole: bool = True) -> None:
        observation, graph, self._open, self._graph = self._open, self._graph, None, None
        if observation is None:
            return
        observation.end()
        with contextlib.suppress(OSError):
            self._left -= observation.path.stat().st_size
        if whole:
            setattr(graph, _NUMBER, self._count)

    def _note(self, graph: Any) -> None:
        if self.replays:
            self.replays[-1].append(getattr(graph, _NUMBER, 0))

    def step_ended(self, *, profiles: bool) -> None:
        """A step has ended; `profiles`: what is replayed next belongs to a profiled one."""
        if self._open is not None and threading.get_ident() == self._thread:
            # A capture broke off without an end: this thread takes steps again.
            self._do(functools.partial(self._end, whole=False))
        self.replays = self._replays if profiles and not self.failed else None
        if self.replays is not None:
            self.replays.append([])

    def close(self) -> tuple[Mapping[int, Path], list[list[int]]]:
        """Stop recording; return the files by graph number, and the replays by profiled step."""
        self._do(functools.partial(self._end, whole=False))
        self._left, self.replays = 0, None
        paths = {number: self._path(number) for number in range(1, self._count + 1)}
        return {number: path for number, path in paths.items() if path.exists()}, self._replays

    def _give_up(self, error: Exception) -> None:
        self.failed.append(error)
        # Without some of them, the graphs that a step replays are unknown.
        self._left, self.replays, self._replays = 0, None, []
        if self._open is not None:
            self._do(functools.partial(self._end, whole=False))

    def _path(self, number: int) -> Path:
        return self._folder / f"graph{number}.json"


class _Observation:
    """One capture under observation."""

    def __init__(self, torch: Any, path: Path) -> None:
        self.path = path
        self._torch = torch
        self._swaps = PatchSet()
        self._profiles = False

    def begin(self) -> bool:
        """Start; False if it cannot: another torch, or an observer of the script's own."""
        observer = self._torch._C._profiler
        try:
            # One that cannot write its file is useless, and blocks all later ones.
            self.path.touch()
            self.path.unlink()
            with muted_stderr():
                observer._add_execution_trace_observer(str(self.path))
                # If there is one already it also returns True, but makes no file.
                if not self.path.exists():
                    return False
                observer._enable_execution_trace_observer()
        except (AttributeError, OSError, RuntimeError, TypeError):
            return False
        self._name_kernels()
        return True

    def end(self) -> None:
        observer = self._torch._C._profiler
        self._swaps.undo()
        # The script may have ended either itself: a truncated file is not used.
        if self._profiles:
            with contextlib.suppress(AttributeError, OSError, RuntimeError):
                _write_stacks(self.path, self._torch._C._autograd._disable_profiler_legacy())
        with contextlib.suppress(RuntimeError), muted_stderr():
            observer._disable_execution_trace_observer()
            observer._remove_execution_trace_observer()

    def _name_kernels(self) -> None:
        """Make the kernels of compiled code report themselves, as under a profiler."""
        torch = self._torch
        if not torch.autograd._profiler_enabled():
            try:
                torch._C._autograd._enable_profiler_legacy(_on_the_host(torch))
                self._profiles = True
            except (AttributeError, RuntimeError, TypeError):
                return
        self._swaps.swap(torch.autograd.profiler, "_is_profiler_enabled", lambda _: True)
        # What a kernel reports besides its arguments differs between versions; the observer refuses
        # a kernel with missing fields.
        self._swaps.swap(torch._C._profiler, "_RecordFunctionFast", _without_extras)


def _without_extras(record: Any) -> Any:
    def named(name: str, *given: Any, **extras: Any) -> Any:
        values = given[0] if given else extras.get("input_values")
        return record(name) if values is None else record(name, values)

    return named


def hide_from_dynamo() -> None:
    """Exclude boundby's frame around a kernel's name from Dynamo, because compiled code calls
    it."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None:
        for code in _without_extras.__code__.co_consts:
            if isinstance(code, types.CodeType):
                dynamo.skip_code(code)


def _write_stacks(path: Path, threads: Any) -> None:
    """Write the stack of each operator beside the recording: the stacks, and the index of each
    operator's."""
    stacks: dict[tuple[str, ...], int] = {}
    called: dict[int, int] = {}
    for events in threads:
        for event in events:
            if event.kind() == "push" and (stack := tuple(event.stack())):
                called[event.handle()] = stacks.setdefault(stack, len(stacks))
    text = json.dumps({"stacks": list(stacks), "called": called})
    path.with_suffix(".stacks").write_text(text)


def _on_the_host(torch: Any) -> Any:
    """A profile of the host alone, with arguments and stacks."""
    profiler = torch._C._profiler
    return profiler.ProfilerConfig(
        profiler.ProfilerState.CPU,
        True,  # arguments
        False,  # memory
        True,  # stacks
        False,  # operations
        False,  # modules
        profiler._ExperimentalConfig(),
    )
