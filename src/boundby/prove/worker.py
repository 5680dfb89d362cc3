"""The script's process: `python -m boundby.prove.worker SPEC.json`.

Starts the script once, switches variants at its step boundaries, and writes the evidence after each
block. With `timed`, it measures a single variant: for fixes that need a new process and for the
final check of a patch. Nothing heavy is imported before the script imports torch, because the
script may set options for that import.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from boundby.capture.process import script
from boundby.capture.process.execution import Ending, Target
from boundby.capture.process.guard import Failure
from boundby.capture.process.plan import Plan
from boundby.fixes import FIXES, Fix
from boundby.model.errors import BoundbyError
from boundby.prove.candidate import Candidate
from boundby.prove.core_use import core_use
from boundby.prove.evidence import Evidence
from boundby.prove.files import note_written_files
from boundby.prove.process_time import (
    MAX_WARM_STEPS,
    PAIR,
    PATCHING_S,
    needed_s,
    process_s,
    reserved_s,
)
from boundby.prove.ranks import Ranks, shared_plan
from boundby.prove.replaced_sources import replace_sources
from boundby.prove.rounds import Steps
from boundby.prove.search import Search
from boundby.prove.site_recorder import SiteRecorder
from boundby.runtime.import_hooks import when_imported
from boundby.runtime.patching import record_aliases
from boundby.runtime.step_hooks import StepHook, active_hooks

_NEVER = 1_000_000_000  # more than any number of steps


class Timed(msgspec.Struct, kw_only=True):
    """Measure this many steps of one variant, and nothing else."""

    variant: tuple[str, ...]
    steps: int


class Spec(msgspec.Struct, kw_only=True):
    """The task of one process."""

    target: str
    args: list[str]
    is_module: bool
    step_by: str = "auto"
    plugins: list[str] = []
    result: str
    files: str
    began: float  # on the machine's monotonic clock: when the process was started
    deadline: float  # and when measuring has to end
    store_port: int | None = None  # where several ranks agree on what runs
    # live
    candidates: list[Candidate] = []
    evidence: Evidence | None = None  # results of earlier processes
    accept_unverified: bool = False
    max_steps: int | None = None
    seed: int = 0
    start_fixes: int = 0  # number of them for which time is reserved
    start_gain: float = 1.0  # predicted for the best of them
    max_reserved_s: float = 0.0
    # timed
    timed: Timed | None = None
    applied: list[str] = []  # fixes that are entered before the script starts
    sources: dict[str, str] = {}  # replacement files, by original path


def fix_of(key: str) -> Fix:
    """The fix of a `fault/name`; those of plugins are known once the faults are loaded."""
    fault_id, _, name = key.partition("/")
    for fix in FIXES:
        if fix.name == name:
            return fix
    faults = importlib.import_module("boundby.faults")
    for fault in faults.FAULTS:
        for fix in fault.fixes:
            if fault.id == fault_id and fix.name == name:
                return fix  # type: ignore[no-any-return]
    raise BoundbyError(f"no fix is called {key}")


def main(spec: Spec) -> None:
    for plugin in spec.plugins:
        importlib.import_module(plugin)
    note_written_files(Path(spec.files))
    if spec.sources:
        replace_sources(spec.sources)
    run = _Live(spec)
    with contextlib.ExitStack() as applied:
        for key in spec.applied:
            apply = fix_of(key).apply
            if apply is not None:
                applied.enter_context(apply())
        when_imported("torch", run.torch_arrived)
        stop_waiting = when_imported("jax", run.jax_arrived)
        applied.callback(stop_waiting)
        run.before()
        ending = script.run_script(
            Target(name=spec.target, args=spec.args, is_module=spec.is_module),
            plan=run.plan,
            step_by=spec.step_by,  # type: ignore[arg-type]
            folder=Path(spec.result).parent,
            keep_going=False,
            on_refusal=lambda capture, _: run.end(Ending(exit_code=0, capture=capture)),
            on_failure=run.failed,
        )
        if not ending.forked:
            run.end(ending)


class _Live:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.plan = Plan(warmup=_NEVER, clean=1, issue=0, profiled=0)
        self.evidence = spec.evidence or Evidence()
        self.evidence.done = self.evidence.script_ended = self.evidence.out_of_time = False
        self.evidence.failed_itself = False
        self.evidence.ended = None
        self.sites = SiteRecorder()
        self.is_first = spec.store_port is None or os.environ["RANK"] == "0"
        self.engine: Any = None
        self.steps_before = self.evidence.steps
        self.seconds_before = self.evidence.seconds
        self.cores_before = core_use()

    def before(self) -> None:
        """Right before the script's first line."""
        if self.spec.timed is None:
            self.sites.begin()

    def failed(self, failure: Failure) -> None:
        """Stop measuring after a failure of boundby itself."""
        sys.stderr.write(failure.text)
        self.end(Ending(exit_code=1, failure=failure))

    def write(self, value: object) -> None:
        if not self.is_first:
            return
        path = Path(self.spec.result)
        partial_ = path.with_suffix(".partial")
        partial_.write_bytes(msgspec.msgpack.encode(value))
        partial_.replace(path)

    def torch_arrived(self, torch: ModuleType) -> None:
        active_hooks.append(_Starter(partial(self.start, torch)))

    def jax_arrived(self, jax: ModuleType) -> None:
        active_hooks.append(_JaxStarter(partial(self.start_jax, jax)))

    def start_jax(self, jax: Any, starter: StepHook) -> StepHook:
        """Start at the first step of a JAX program."""
        from boundby.prove.jax_live import JaxLiveEngine

        recorder = script.jax_recorder()
        assert recorder is not None
        search, plan = self._search("jax")
        fixes = {candidate.key: fix_of(candidate.key) for candidate in search.candidates}
        self.engine = JaxLiveEngine(
            jax, recorder, fixes=fixes, **self._engine_options(search, plan)
        )
        active_hooks[active_hooks.index(starter)] = self.engine
        return self.engine  # type: ignore[no-any-return]

    def start(self, torch: Any, starter: StepHook) -> StepHook:
        """Start at the first call of the program, when its imports are complete."""
        from boundby.capture.torch.device import TorchDevice
        from boundby.prove.live import LiveEngine

        record_aliases([name for name in sys.modules if name.partition(".")[0] == "torch"])
        search, plan = self._search("torch")
        fixes = {candidate.key: fix_of(candidate.key) for candidate in search.candidates}
        port = self.spec.store_port
        ranks = Ranks(torch, port) if port is not None else None
        self.engine = LiveEngine(
            torch,
            fixes=fixes,
            device=TorchDevice(torch),
            ranks=ranks,
            **self._engine_options(search, shared_plan(plan, ranks) if ranks else plan),
        )
        active_hooks[active_hooks.index(starter)] = self.engine
        return self.engine  # type: ignore[no-any-return]

    def _engine_options(self, search: Search, plan: Steps) -> dict[str, Any]:
        timed = {"max_warm_steps": MAX_WARM_STEPS} if self.spec.timed is not None else {}
        return {
            **timed,
            "user_defined": frozenset(
                candidate.key for candidate in search.candidates if candidate.user_defined
            ),
            "search": search,
            "plan": plan,
            "sites": self.sites,
            "main_kind": script.main_kind,
            "unobserved": script.unseen,
            "on_step": self.save,
            "on_done": self.leave,
        }

    def _search(self, framework: str) -> tuple[Search, Steps]:
        spec = self.spec
        candidates = [
            candidate for candidate in spec.candidates if candidate.framework == framework
        ]
        self.evidence.framework = framework
        self.evidence.start_s = time.monotonic() - spec.began
        self.cores_before = core_use()
        start_s = self.evidence.start_s
        search = Search(
            candidates=candidates,
            evidence=self.evidence,
            now=time.monotonic,
            ends_at=spec.deadline,
            reserved_s=lambda step_s: reserved_s(
                spec.start_fixes, process_s(start_s, step_s), spec.max_reserved_s
            ),
            start_gain=spec.start_gain,
            final_check_s=partial(self._final_check_s, start_s),
            random=random.Random(spec.seed),
            accept_unverified=spec.accept_unverified,
            max_steps=spec.max_steps,
            since_start_s=lambda: time.monotonic() - spec.began,
        )
        if spec.timed is not None:
            return search, search.timed(spec.timed.variant, spec.timed.steps)
        return search, search.run()

    def _final_check_s(self, start_s: float, step_s: float) -> float:
        """Time for the patch of the chosen fixes and its check; no check if it takes too long.

        Compiled code is compiled again in the copy.
        """
        chosen = self.evidence.chosen
        compiling_s = self.evidence.preparation_s.get(chosen, 0.0)
        wanted_s = needed_s(PAIR, process_s(start_s, step_s)) + compiling_s + PATCHING_S
        return wanted_s if wanted_s <= self.spec.max_reserved_s else PATCHING_S

    def save(self) -> None:
        self.evidence.seconds = self.seconds_before + time.monotonic() - self.spec.began
        self.evidence.free_cores = core_use().free_cores(since=self.cores_before)
        self.write(self.evidence)

    def leave(self) -> None:
        self.save()
        _exit()

    def end(self, ending: Ending) -> None:
        evidence = self.evidence
        if not evidence.done:
            evidence.ended = _error_line(ending)
            evidence.failed_itself = ending.failure is not None
            if evidence.ended is None:
                steps = evidence.steps - self.steps_before
                evidence.script_ended = True
                evidence.ended = f"the script ended after {steps} steps"
        else:
            evidence.running = ()
        if evidence.sites is None:
            evidence.sites = self.sites.program_sites()
        self.save()
        # The first rank writes why; the others can only show that they failed.
        _exit(0 if self.is_first or evidence.done or evidence.script_ended else 1)


class _Starter(StepHook):
    """Starts the engine at the first call or optimizer step and replaces itself by it."""

    def __init__(self, start: Callable[[StepHook], StepHook]) -> None:
        self._start = start

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._start(self).call_begins(called, args, kwargs)

    def optimizer_begins(self, optimizer: Any) -> None:
        self._start(self).optimizer_begins(optimizer)

    def step_ended(self, kind: str) -> None:
        self._start(self).step_ended(kind)


class _JaxStarter(_Starter):
    """Starts the engine at the first step; earlier calls are of many functions."""

    framework = "jax"

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        return


def _error_line(ending: Ending) -> str | None:
    """Why the script failed, in one line; the traceback is written to the log."""
    error = ending.error
    if error is not None:
        traceback.print_exception(error)
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}".strip(": ")
    if ending.failure is not None:
        return f"boundby itself failed: {ending.failure.line}"
    if ending.exit_code and not ending.end_requested:
        return f"the script exited with code {ending.exit_code}"
    return None


def _exit(code: int = 0) -> None:
    """Exit without waiting for the script's threads and exit handlers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=Spec))
