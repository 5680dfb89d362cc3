"""One trial, in a process of its own: `python -m boundby.prove.worker SPEC.json`.

Applies treatments, runs the script under the hooks of `boundby run`, without any profiler, ends it
when enough steps were timed, and writes down what was seen. Standard library only until the script
imports torch: it may set how that is loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from boundby.capture.process.execution import Ending, Target
from boundby.capture.process.guard import Failure
from boundby.capture.process.import_hooks import when_imported
from boundby.capture.process.patching import PatchSet
from boundby.capture.process.plan import Plan
from boundby.capture.process.script import run_script
from boundby.capture.process.step_hooks import StepHook, active_hooks
from boundby.capture.torch.recorder import Capture
from boundby.fixes import FIXES, Fix
from boundby.fixes.log import touched
from boundby.fixes.precision import switch_autocast_off
from boundby.model.errors import BoundbyError
from boundby.prove.files import note_written_files
from boundby.prove.imports import Imports
from boundby.prove.numerics_recorder import EXACT_STEPS, SEEDED_STEPS, NumericsRecorder
from boundby.prove.stages import Stages

_COMPARED = EXACT_STEPS + SEEDED_STEPS
# Steps beyond the compared ones before warm-up can be over.
_STEADY_STEPS = 3
# Where none is compared: three before a capture, and two replays of it.
_LEAST_WARMUP = 5
# A program whose steps never become steady is timed nonetheless, after this many.
_MOST_WARMUP = 40
_LEAST_CLEAN_S, _MOST_CLEAN_S = 1.0, 15.0


def treatment(key: str) -> Fix:
    """A fix by `fault/name`; those of plugins are known once the faults are loaded."""
    fault_id, _, name = key.partition("/")
    for found in FIXES:
        if found.name == name:
            return found
    faults = importlib.import_module("boundby.faults")
    offered: list[Fix] = [
        fix for fault in faults.FAULTS if fault.id == fault_id for fix in fault.fixes
    ]
    for found in offered:
        if found.name == name:
            return found
    raise BoundbyError(f"no fix is called {key}")


class Trial:
    """The script with its treatments, and what is written down of it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._notebook: NumericsRecorder | None = None
        self._graphs = _Graphs()
        self._imports: Imports | None = None
        self._compared = _COMPARED if spec["compared"] else 0
        self._stages = Stages(spec["began_s"], self._compared)

    def run(self) -> None:
        spec = self._spec
        # A reference is compared, never timed.
        plan = Plan(
            warmup=self._compared if spec["reference"] else None,
            clean=1 if spec["reference"] else spec["steps"],
            issue=0,
            profiled=0,
            least_warmup=max(_LEAST_WARMUP, self._compared + _STEADY_STEPS),
            most_warmup=_MOST_WARMUP,
            most_warmup_s=spec["patience_s"],
            least_clean_s=_LEAST_CLEAN_S,
            most_clean_s=_MOST_CLEAN_S,
        )
        # The script as it is needs none of them, nor what they import.
        for plugin in spec["plugins"] if spec["treatments"] else ():
            importlib.import_module(plugin)
        note_written_files(Path(spec["files"]))
        if spec["imports"] is not None:
            self._imports = Imports()
        with contextlib.ExitStack() as applied:
            for key in spec["treatments"]:
                apply = treatment(key).apply
                if apply is not None:
                    applied.enter_context(apply())
            # After the treatments, which may want torch first.
            when_imported("torch", self._torch_arrived)
            target = spec["target"]
            ending = run_script(
                Target(name=target["name"], args=target["args"], is_module=target["is_module"]),
                plan=plan,
                step_by=spec["step_by"],
                folder=Path(spec["result"]).parent,
                keep_going=False,
                on_refusal=self._refused,
                on_failure=self._failed,
            )
            if not ending.forked:
                self._write(ending)
                # Threads and exit handlers of a script are not waited for.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)

    def _torch_arrived(self, torch: ModuleType) -> None:
        if self._spec["reference"]:
            compute_in_float32(torch)
        active_hooks.append(self._stages)
        if self._compared:
            self._notebook = NumericsRecorder(
                torch,
                seed=self._spec["seed"],
                has_dropout=self._spec["has_dropout"],
                nudged=self._spec["nudged"],
                exact=self._spec["exact"],
            )
            active_hooks.append(self._notebook)
        active_hooks.append(self._graphs)
        if self._imports is not None:
            active_hooks.append(self._imports)
        self._stages.torch_arrived()

    def _refused(self, capture: Capture) -> None:
        self._write(Ending(exit_code=0, capture=capture))
        os._exit(0)

    def _failed(self, failure: Failure) -> None:
        """Boundby itself has failed: there is nothing to be timed any more."""
        sys.stderr.write(failure.text)
        self._write(Ending(exit_code=1, failure=failure))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _write(self, ending: Ending) -> None:
        capture = ending.capture
        seen: dict[str, Any] = {"touched": dict(touched), "kind": None, "samples_ns": []}
        if capture is not None:
            kind = capture.main_kind
            seen["kind"] = kind
            seen["samples_ns"] = capture.clean.get(kind, []) if kind else []
            seen["warmup_ns"] = capture.warmup.get(kind, []) if kind else []
            seen["pace_ns"] = capture.pace
            seen["peak_bytes"] = peak_bytes()
        if self._notebook is not None:
            seen["notes"] = self._notebook.written()
        seen["graphs_while_clean"] = self._graphs.since(len(seen["samples_ns"]))
        clean = sum(map(len, capture.clean.values())) if capture is not None else 0
        seen["spent"] = self._stages.spent(clean)
        seen["problem"] = _problem(ending)
        if self._imports is not None:
            self._imports.write(Path(self._spec["imports"]))
        path = Path(self._spec["result"])
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(seen))
        partial.replace(path)


class _Graphs(StepHook):
    """How many graphs Dynamo had compiled at each step's end."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    def step_ended(self) -> None:
        utils = sys.modules.get("torch._dynamo.utils")
        counters = utils.counters["stats"] if utils is not None else {}
        self._counts.append(int(counters.get("unique_graphs", 0)))

    def since(self, steps: int) -> int:
        """Graphs that were compiled during the last so many steps."""
        if len(self._counts) <= steps or not steps:
            return 0
        return self._counts[-1] - self._counts[-1 - steps]


def peak_bytes() -> float | None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(kilobytes) * (1 if sys.platform == "darwin" else 1024)


def _problem(ending: Ending) -> str | None:
    """Why the script came to a bad end, in one line; the traceback goes to the log."""
    error = ending.error
    if error is not None:
        traceback.print_exception(error)
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}".strip(": ")
    if ending.failure is not None:
        return ending.failure.line
    if ending.exit_code and not ending.asked:
        return f"the script exited with code {ending.exit_code}"
    return None


def compute_in_float32(torch: Any) -> Callable[[], None]:
    """The reference: no autocast, no tf32, whatever the script asks for. Gives back its undoing."""
    swaps = PatchSet()
    precision, loose = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    switch_autocast_off(torch, swaps)
    torch.set_float32_matmul_precision("highest")
    swaps.swap(torch, "set_float32_matmul_precision", lambda _: lambda wanted: None)
    torch.backends.cudnn.allow_tf32 = False

    def undo() -> None:
        swaps.undo()
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = loose

    return undo


if __name__ == "__main__":
    Trial(json.loads(Path(sys.argv[1]).read_text())).run()
