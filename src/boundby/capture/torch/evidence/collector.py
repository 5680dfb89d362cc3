"""Collects evidence in a few steps after the profiled ones, and leaves the process as it was."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.guard import Guard
from boundby.capture.torch.evidence.calls import CallReader
from boundby.capture.torch.evidence.gradients import GradientReader
from boundby.capture.torch.evidence.padding import lengths_of
from boundby.capture.torch.evidence.places import user_lines
from boundby.capture.torch.evidence.rebuilt import AssignmentReader
from boundby.capture.torch.evidence.setting_lines import setting_lines
from boundby.capture.torch.evidence.values import tensors_in
from boundby.capture.torch.modes import outside_modes
from boundby.model.evidence import Padding, ProgramSettings, RebuiltTensor, StepEvidence
from boundby.runtime.patching import PatchSet
from boundby.runtime.step_hooks import StepHook, active_hooks

# The step that is examined: what it made may be used in the next one.
_EXAMINED_STEP = 1


@skipped_by_warnings
class EvidenceCollector(StepHook):
    """Call `begin`, `step` at each step's end, `end`. A failure ends only the collecting."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._swaps = PatchSet()
        self._handles: list[Any] = []
        self._calls = CallReader(torch)
        self._gradients = GradientReader(torch)
        self._assignments = AssignmentReader(torch)
        self._anomalies: dict[str, None] = {}
        self._padding: Padding | None = None
        self._steps = 0
        self._running = False
        self.failed: list[Exception] = []
        self._do = Guard(self._fail).do

    def begin(self) -> None:
        self._do(self._begin)

    def step(self) -> None:
        if self._running:
            with outside_modes(self._torch):
                self._do(self._next_step)

    @property
    def wants_more(self) -> bool:
        return self._running and self._gradients.waits_for_clearing

    def end(self) -> None:
        """Restore everything; may be called at any time, and repeatedly."""
        if not self._running:
            return
        self._running = False
        self._assignments.stop()
        for handle in self._handles:
            handle.remove()
        self._swaps.undo()
        if self in active_hooks:
            active_hooks.remove(self)
        with outside_modes(self._torch):
            self._do(self._gradients.end)

    def evidence(self) -> StepEvidence:
        """The evidence; only settings if fewer than two steps were observed."""
        self.end()
        with outside_modes(self._torch):
            found = None if self._steps < 2 or self.failed else self._do(self._read)
        if found is None and (settings := self._do(self._settings)) is not None:
            return StepEvidence(settings=settings)
        return found or StepEvidence()

    def _fail(self, error: Exception) -> None:
        self.failed.append(error)
        self.end()

    def _begin(self) -> None:
        torch = self._torch
        self._running = True
        active_hooks.append(self)
        self._swaps.swap(torch.autograd, "_engine_run_backward", self._around_engine)
        if not _has_compiled():
            # A compiled model must neither be compiled again for hooks nor traced through them.
            module = torch.nn.modules.module
            self._handles = [
                module.register_module_forward_pre_hook(self._call_begins),
                module.register_module_forward_hook(self._call_ends, always_call=True),
            ]
            self._assignments.start()

    def _next_step(self) -> None:
        self._steps += 1
        self._calls.next_step()
        self._gradients.next_step()
        self._assignments.next_step()

    def _call_begins(self, module: Any, args: tuple[Any, ...]) -> None:
        with outside_modes(self._torch):
            self._do(self._calls.begins, module, args)

    def _call_ends(self, module: Any, args: tuple[Any, ...], result: Any) -> None:
        with outside_modes(self._torch):
            self._do(self._calls.ends, module, result)

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with outside_modes(self._torch):
            self._do(self._look_for_padding, args, kwargs)

    def optimizer_begins(self, optimizer: Any) -> None:
        with outside_modes(self._torch):
            self._do(self._gradients.optimizer_begins, optimizer)

    def _look_for_padding(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._steps != _EXAMINED_STEP or self._padding is not None:
            return
        for batch in tensors_in(self._torch, [args, kwargs]):
            found = lengths_of(self._torch, batch)
            if found is not None:
                width, lengths = found
                where = self._assignments.bound_lines.of(batch) + user_lines(sys._getframe(2))
                where = list(dict.fromkeys(where))
                self._padding = Padding(where=where, width=width, lengths=lengths)
                return

    def _around_engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        collector = self

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not collector._running or collector._calls.in_backward:
                return original(*args, **kwargs)
            with outside_modes(collector._torch):
                collector._do(collector._backward_begins, args, kwargs)
            collector._calls.in_backward = True
            try:
                result = original(*args, **kwargs)
            finally:
                collector._calls.in_backward = False
            if collector._running:
                with outside_modes(collector._torch):
                    collector._do(collector._gradients.ends)
            return result

        return run

    def _backward_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._torch.is_anomaly_enabled():
            for line in user_lines(sys._getframe(2))[:1]:
                self._anomalies[line] = None
        self._gradients.begins(args, kwargs)

    def _read(self) -> StepEvidence:
        used = self._gradients.used_nodes
        fixed = self._calls.has_fixed_inputs()
        return StepEvidence(
            steps=self._steps,
            settings=self._settings(),
            repeated=[] if fixed else self._calls.repeated(_EXAMINED_STEP, used),
            unread_results=self._calls.unread_results(_EXAMINED_STEP, used),
            growing_input=self._calls.growing_input(),
            unused_graphs=self._calls.unused_graphs(_EXAMINED_STEP, used),
            unused_gradients=self._gradients.unused(_EXAMINED_STEP, self._calls.models()),
            kept_graphs=self._gradients.kept_graphs(_EXAMINED_STEP),
            repeated_backwards=self._gradients.repeated(_EXAMINED_STEP),
            rebuilt=self._rebuilt(fixed),
            single_samples=self._calls.single_samples(),
            padding=self._padding,
            growth=self._assignments.kept_graphs.growth(),
            uncleared=self._gradients.uncleared(),
            has_backward=bool(self._gradients.backwards),
            fixed_inputs=fixed,
        )

    def _rebuilt(self, fixed: bool) -> list[RebuiltTensor]:
        """The rebuilt tensors, without results of models. `fixed`: the script uses the same inputs
        in every step, on which models that are not trained, and frozen parts, return the same
        results: lines that call models are left out. On changing inputs, equal results of models
        are chance, as the classes of samples."""
        found = self._assignments.rebuilt()
        if not fixed:
            by_chance = self._calls.lines_of_changing_inputs()
            return [one for one in found if one.where not in by_chance]
        calls = self._calls.lines() if self._gradients.backwards else {one.where for one in found}
        return [one for one in found if not calls.intersection((one.where, one.called_at))]

    def _settings(self) -> ProgramSettings:
        torch = self._torch
        deterministic = bool(torch.are_deterministic_algorithms_enabled())
        fills = bool(torch.utils.deterministic.fill_uninitialized_memory)
        lines = setting_lines()
        affinity = getattr(os, "sched_getaffinity", None)
        return ProgramSettings(
            anomaly=bool(torch.is_anomaly_enabled()),
            anomaly_lines=list(self._anomalies),
            anomaly_set_at=lines.anomaly,
            set_at=lines.others,
            compiled_at=lines.compiled,
            doubles_at=lines.doubles,
            doubles_made_at=lines.doubles_made,
            deterministic=deterministic,
            fills_memory=deterministic and fills,
            cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
            threads=int(torch.get_num_threads()),
            cores=len(affinity(0)) if affinity else os.cpu_count(),
        )


def _has_compiled() -> bool:
    """Whether there is compiled code now: code that was freed or reset is not compiled again."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    if frames is not None and hasattr(frames, "output_codes"):
        return bool(frames.output_codes.seen_ids)
    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo is not None and getattr(dynamo, "counters", {}).get("frames"))
