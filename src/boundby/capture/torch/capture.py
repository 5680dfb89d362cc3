"""What was recorded of one torch script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boundby.capture.host.line_sampler import Sample
from boundby.capture.process.guard import Failure
from boundby.capture.process.plan import PROFILER_START
from boundby.capture.process.step_finder import StepBy
from boundby.capture.torch.compiled_code import CompiledGraphs
from boundby.capture.torch.line_tracer import LineTrace
from boundby.capture.torch.profiler_cost import MeasuredCallCost
from boundby.model.evidence import StepEvidence
from boundby.model.host_counters import HostCounters
from boundby.model.note import Note
from boundby.model.step_kind import StepKind

if TYPE_CHECKING:
    from boundby.model.run import RunParts


@dataclass(slots=True, kw_only=True)
class Capture:
    """Everything recorded of one script, however it ended."""

    step_by: StepBy | None
    main_kind: str | None
    clean: dict[str, list[float]] = field(default_factory=dict)
    warmup: dict[str, list[float]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    issue: list[dict[str, float]] = field(default_factory=list)  # the steps behind `phases`
    addition_ns: list[float] = field(default_factory=list)  # ns per addition, between steps
    issue_addition_ns: list[float] = field(default_factory=list)
    trace: Path | None = None
    profiled: list[str] = field(default_factory=list)  # the kinds of the complete ones
    first_profiled: int = PROFILER_START  # the first of these that counts
    cpu_wait: list[float] = field(default_factory=list)  # of each, ns runnable without a core
    fresh_pages: list[int] = field(default_factory=list)  # of each, page faults
    results: Any = None
    line_trace: LineTrace | None = None  # of the first profiled step
    samples: list[Sample] = field(default_factory=list)  # of the script's lines
    call_cost: MeasuredCallCost | None = None  # of the profiler
    kernel_lines: dict[str, str] = field(default_factory=dict)  # of compiled kernels
    compiled: CompiledGraphs = field(default_factory=dict)
    graphs: Mapping[int, Path] = field(default_factory=dict)  # recordings of captured graphs
    replays: list[list[int]] = field(default_factory=list)  # the graphs replayed, by profiled step
    cuda_index: int | None = None
    kinds: dict[str, StepKind] = field(default_factory=dict)  # by the labels used here
    seen: dict[str, int] = field(default_factory=dict)
    started: list[str] = field(
        default_factory=list
    )  # commands that observe the scripts that it ran
    rank: int | None = None  # if it is one of several
    world: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    optimizers_made_at: list[str] = field(default_factory=list)
    trainer: str | None = None
    host_counters: HostCounters = field(default_factory=HostCounters)
    evidence: StepEvidence = field(default_factory=StepEvidence)
    notes: list[Note] = field(default_factory=list)
    failure: Failure | None = None  # of boundby itself
    run: RunParts | None = None  # the parts of the whole run

    @property
    def profiled_steps(self) -> list[int]:
        """The profiled steps that can be analysed."""
        if self.trace is None:
            return []
        return [
            index
            for index, kind in enumerate(self.profiled)
            if index >= self.first_profiled and kind == self.main_kind
        ]
