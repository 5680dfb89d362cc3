"""Proves a function that no other process can import, with the same engine in this process."""

from __future__ import annotations

import copy
import functools
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.process.instruments import Device
from boundby.capture.process.plan import Plan
from boundby.capture.torch.device import TorchDevice
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.recorder import Recorder
from boundby.fixes import Fix
from boundby.model import Machine, Note
from boundby.model.diagnosis import Diagnosis
from boundby.model.progress import show_progress
from boundby.prove.candidate import Candidate
from boundby.prove.candidates import Choice, candidates_of
from boundby.prove.evidence import Evidence
from boundby.prove.live import LiveEngine
from boundby.prove.proofs import proofs_of
from boundby.prove.search import Search
from boundby.prove.site_recorder import SiteRecorder
from boundby.prove.snapshots import random_state
from boundby.prove.worker import fix_of
from boundby.runtime.patching import record_aliases
from boundby.runtime.step_hooks import StepHook, step_hook_active
from boundby.session import live as session

CAVEAT = Note(
    code="same-process",
    text="other processes cannot import the function, so all fixes were measured in this one; put "
    "it in a module: then fixes of the process start are tried too, and a fresh process checks the "
    "result",
)
_NEVER = 1_000_000_000  # more than any number of steps


def prove_here(
    call: Callable[[], Any],
    *,
    budget_s: float,
    choice: Choice,
    machine: Machine | None,
    accept_unverified: bool,
) -> Diagnosis:
    ends_at = time.monotonic() + budget_s
    diagnosis = session.diagnose(call, machine=machine)
    candidates = [
        candidate for candidate in candidates_of(diagnosis, choice) if candidate.scope == "step"
    ]
    evidence = Evidence()
    if candidates:
        with show_progress("proving:") as progress:
            measure_function(
                call,
                candidates,
                evidence,
                fixes={candidate.key: fix_of(candidate.key) for candidate in candidates},
                deadline=ends_at,
                accept_unverified=accept_unverified,
                report=lambda: progress(
                    evidence.now, min(1.0, 1 - (ends_at - time.monotonic()) / budget_s)
                ),
            )
    return msgspec.structs.replace(
        diagnosis, proofs=proofs_of(evidence, candidates), notes=[*diagnosis.notes, CAVEAT]
    )


def measure_function(
    call: Callable[[], Any],
    candidates: Sequence[Candidate],
    evidence: Evidence,
    *,
    fixes: Mapping[str, Fix],
    deadline: float,
    accept_unverified: bool = False,
    report: Callable[[], None] = lambda: None,
    device: Device | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Call a function, one step each time, until its variants are decided or time is over."""
    import torch

    torch_: Any = torch
    done: list[bool] = []
    hooks = Hooks()
    record_aliases([name for name in sys.modules if name.partition(".")[0] == "torch"])
    search = Search(
        candidates=candidates,
        evidence=evidence,
        now=clock,
        ends_at=deadline,
        accept_unverified=accept_unverified,
    )
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        recorder = Recorder(
            torch_,
            plan=Plan(warmup=_NEVER, clean=1, issue=0, profiled=0),
            step_by="mark",
            folder=Path(folder),
            on_done=lambda: None,
            on_first_step=hooks.narrow,
        )

        engine = LiveEngine(
            torch_,
            fixes=fixes,
            user_defined=frozenset(
                candidate.key for candidate in candidates if candidate.user_defined
            ),
            search=search,
            plan=search.run(),
            device=device or TorchDevice(torch_),
            clock=clock,
            sites=SiteRecorder(),
            main_kind=lambda: recorder.windows.main_kind,
            unobserved=functools.partial(_unobserved, hooks, recorder),
            on_step=report,
            on_done=lambda: done.append(True),
        )
        state = _State(torch_)
        hooks.install(torch_)
        hooks.watcher = recorder
        try:
            with step_hook_active(state), step_hook_active(engine):
                while not done:
                    call()
                    recorder.mark()
        finally:
            if not done:
                engine.finish()
            hooks.remove()
            state.restore()


def _unobserved(hooks: Hooks, recorder: Recorder, act: Callable[[], Any]) -> Any:
    """Call `act` and return its result; the recorder does not see its calls."""
    hooks.watcher = None
    try:
        return act()
    finally:
        hooks.watcher = recorder


class _State(StepHook):
    """Modules and optimizers as they were before their first use here."""

    def __init__(self, torch: Any) -> None:
        self._modules: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._restore_random = random_state(torch)

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if hasattr(called, "state_dict") and called not in self._modules:
            self._modules[called] = copy.deepcopy(called.state_dict())

    def optimizer_begins(self, optimizer: Any) -> None:
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = copy.deepcopy(optimizer.state_dict())

    def restore(self) -> None:
        for module, state in self._modules.items():
            module.load_state_dict(state)
            module.zero_grad(set_to_none=True)
        for optimizer, state in self._optimizers.items():
            optimizer.load_state_dict(state)
        self._restore_random()
