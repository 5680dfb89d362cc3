"""Alternates whole processes of the script: the final check, and fixes that need a new process."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from boundby.model.proof import Speedup
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence, Variant
from boundby.prove.launch import Setting, launch
from boundby.prove.process_time import needed_s

_STEPS = 12  # a process
_MAX_PAIRS = 5  # time limit
# Student's t for 95% intervals: with the dozen processes of `_PROCESS_SD`, and by number of pairs.
# Two pairs that differ by chance would decide nothing: they have that of a normal distribution.
_USUAL_T, _T = 2.2, {2: 1.96, 3: 4.30, 4: 3.18, 5: 2.78}
# Standard deviation between processes of one script: a dozen of them differed by 10% from lowest to
# highest, which is three standard deviations.
_PROCESS_SD = 0.03
# Of a normal distribution: the standard error of its median in quartile distances, times the square
# root of the count.
_ERROR_OF_MEDIAN = 1.253 / 1.349


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSetup:
    """The setup of one process: fixes switched on live, fixes applied at its start, replaced
    sources.

    `drop_failing_fixes`: a fix that a process cannot apply is left out of it and of later ones.
    """

    name: str
    variant: Variant = ()
    applied: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    drop_failing_fixes: bool = False

    def without(self, left_out: Collection[str]) -> ProcessSetup:
        return replace(
            self,
            variant=tuple(key for key in self.variant if key not in left_out),
            applied=[key for key in self.applied if key not in left_out],
        )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is changed: the script as it is."""
        return not (self.variant or self.applied or self.sources)


@dataclass(slots=True, kw_only=True)
class AlternatingRuns:
    """Two setups measured in processes that ran alternately."""

    before_ns: list[float] = field(default_factory=list)
    after_ns: list[float] = field(default_factory=list)
    peak_before: float | None = None
    peak_after: float | None = None
    problem: str | None = None
    log: str | None = None
    late: bool = False  # the budget ended while a process ran
    left_out: dict[str, str] = field(default_factory=dict)  # by fix: why it was not applied
    # The relative standard error of a process's median step, from its own steps: the largest.
    step_error: float = 0.0

    @property
    def speedup(self) -> Speedup | None:
        ratios = [
            math.log(before / after)
            for before, after in zip(self.before_ns, self.after_ns, strict=False)
        ]
        if not ratios:
            return None
        middle = statistics.fmean(ratios)
        # At least the usual spread between processes of one script; more if these differ more.
        half = _USUAL_T * math.sqrt(2) * math.hypot(_PROCESS_SD, self.step_error)
        if len(ratios) > 1:
            half = max(half, _T[min(len(ratios), _MAX_PAIRS)] * statistics.stdev(ratios))
        half /= math.sqrt(len(ratios))
        return Speedup(
            low=math.exp(middle - half), median=math.exp(middle), high=math.exp(middle + half)
        )


@dataclass(slots=True, kw_only=True)
class FreshProcesses:
    """Runs processes until the time is over."""

    setting: Setting
    candidates: Sequence[Candidate]
    place: Callable[[], Path]
    ends_at: float
    report: Callable[[str], None] = lambda _: None
    written_files: list[str] = field(default_factory=list)
    _process_s: float = 0.0

    def expect(self, seconds: float) -> None:
        """Set the expected duration of a process, until one has been measured."""
        self._process_s = max(self._process_s, seconds)

    def has_time_for(self, processes: int, *, was_reserved: bool = False) -> bool:
        """`was_reserved`: with a margin, which the time since then may have used."""
        if was_reserved:
            return time.monotonic() + needed_s(processes, self._process_s, margin=1) < self.ends_at
        return time.monotonic() + needed_s(processes, self._process_s) < self.ends_at

    def alternate(
        self,
        before: ProcessSetup,
        after: ProcessSetup,
        *,
        pairs: int = _MAX_PAIRS,
        reserved_processes: int = 0,
    ) -> AlternatingRuns:
        """Run pairs of processes while there is time for them and for `reserved_processes` more."""
        runs = AlternatingRuns()
        for pair in range(pairs):
            is_final = not reserved_processes
            if not self.has_time_for(2 + reserved_processes, was_reserved=is_final and pair == 0):
                break
            # The order alternates: a machine that warms up would favour the second.
            order = [(before, True), (after, False)]
            for setup, is_before in order if pair % 2 == 0 else order[::-1]:
                if is_before or not setup.drop_failing_fixes:
                    is_measured = self._run(setup, runs, is_before=is_before)
                else:
                    is_measured = self._run_without_failing_fixes(setup, runs)
                if not is_measured:
                    return runs
            if self._is_decided(runs):
                break
        return runs

    def _is_decided(self, runs: AlternatingRuns) -> bool:
        speedup = runs.speedup
        return speedup is not None and len(runs.after_ns) >= 2 and speedup.low > 1.02

    def _run_without_failing_fixes(self, setup: ProcessSetup, runs: AlternatingRuns) -> bool:
        """Run a process; if it fails with fixes applied from outside, run it again without them."""
        is_measured = self._run(setup.without(runs.left_out), runs, is_before=False)
        applicable = setup.without(runs.left_out)
        outside = [*applicable.variant, *applicable.applied]
        if is_measured and applicable.is_plain:
            runs.after_ns.clear()
            runs.problem = "no fix could be written into the source or applied in a new process"
            return False
        if is_measured or runs.late or not outside:
            return is_measured
        bare = applicable.without(outside)
        if bare.is_plain or not self.has_time_for(1):
            return False
        runs.left_out |= dict.fromkeys(outside, runs.problem or "")
        runs.after_ns.clear()  # measured with what is now left out
        runs.before_ns = runs.before_ns[-1:]
        runs.problem = runs.log = None
        return self._run(bare, runs, is_before=False)

    def _run(self, setup: ProcessSetup, runs: AlternatingRuns, *, is_before: bool) -> bool:
        self.report(setup.name)
        began = time.monotonic()
        launched = launch(
            self.setting,
            {
                "deadline": self.ends_at,
                "candidates": self.candidates,
                "timed": {"variant": setup.variant, "steps": _STEPS},
                "applied": list(setup.applied),
                "sources": dict(setup.sources),
            },
            name=setup.name.replace(" ", "-"),
            cwd=self.place(),
            kill_at=lambda: self.ends_at,
            environment=setup.environment,
        )
        self.written_files += launched.written_files
        evidence = (
            msgspec.msgpack.decode(launched.result, type=Evidence)
            if launched.result
            else Evidence()
        )
        if not evidence.timed_ns:
            ruled = next((ruling.why for ruling in evidence.rulings.values()), None)
            late = "the budget ended while it ran" if launched.late else None
            runs.late = launched.late
            runs.problem = late or ruled or evidence.ended or launched.problem or "no step ended"
            runs.log = str(launched.log)
            return False
        self._process_s = max(self._process_s, time.monotonic() - began)
        middle = statistics.median(evidence.timed_ns)
        runs.step_error = max(runs.step_error, error_of_median(evidence.timed_ns))
        peak = evidence.timed_peak_bytes
        runs.left_out |= evidence.left_out
        if is_before:
            runs.before_ns.append(middle)
            runs.peak_before = peak
        else:
            runs.after_ns.append(middle)
            runs.peak_after = peak
        return True


def error_of_median(times_ns: Sequence[float]) -> float:
    """The relative standard error of a median, if times are alike and independent."""
    if len(times_ns) < 2:
        return 0.0
    # By the middle half of the times, which one slow step does not change.
    low, middle, high = statistics.quantiles(times_ns, n=4, method="inclusive")
    return _ERROR_OF_MEDIAN * (high - low) / middle / math.sqrt(len(times_ns))
