"""Divides the time of a run into parts, from the events that the hooks see.

It only does arithmetic on clocks that are passed in. Some parts are intervals that may nest
(`enter`, `leave`): imports, checkpoints, logging, the start of workers. All other time belongs to
the event at its end, because a batch is fetched for the call that follows it. Time that boundby
itself takes is left out.

Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boundby.capture.process.run_tally import Loader, RunTally

if TYPE_CHECKING:
    from boundby.model.run import RunPartName, RunParts
    from boundby.model.step_kind import Mode

# Fewer calls of each module without gradients in a row are those of a teacher or target network,
# which belong to the training step.
_FEWEST_EVALUATIONS = 3
# A pause between two steps belongs to neither if it is this many times the usual one, longer than
# a step and longer than the minimum.
_LONG_PAUSE = 5.0
_LEAST_PAUSE_NS = 50e6  # assumed: shorter pauses are noise of the host
_FEWEST_PAUSES = 5  # for a median
_MOST_PAUSES = 200  # memory limit
_MOST_SHAPES = 1000  # memory limit
# With a smaller share of a pause on a CPU core, the script waited for something.
_ASLEEP = 0.5
# A pause that the compiler took a larger share of is no pause.
_COMPILING = 0.5


@dataclass(slots=True)
class _Evaluations:
    """A row of calls in evaluation mode or without gradients. `records`: all record gradients.

    `in_training`: of a model in training mode, as rollouts are. `is_data`: of batches that a loader
    delivered, or with a first batch as large as a training batch, which no rollout uses: it is an
    evaluation that does not change the mode. `is_sampled`: of no loader's batches, with the shapes
    of training batches, as an agent computes its targets.
    """

    calls: Counter[int] = field(default_factory=Counter)  # by module
    ns: float = 0.0
    in_training: bool = False
    is_data: bool = False
    is_sampled: bool = True
    of_trained: bool = False
    records: bool = True
    where: str | None = None

    @property
    def is_rollout(self) -> bool:
        return self.in_training and not self.is_data


@dataclass(slots=True)
class _Inside:
    """An interval of a part that has begun (`enter`)."""

    part: RunPartName
    where: str | None
    ns: float = 0.0


class RunClock:
    """Collects the events of a run. `compiled_ns` returns the process' compile time so far."""

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
        compiled_ns: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._compilers = [compiled_ns]
        self._last = self._now = clock()
        self._cpu = cpu_clock()
        self._compiled = 0.0
        self._pending = 0.0  # time since the last event, outside intervals
        self._waited = 0.0  # for a batch: belongs to the call that uses the batch
        self._stack: list[_Inside] = []
        self._tally = RunTally()
        self._step_ns = 0.0
        self._pauses: list[float] = []
        self._after_step = False
        self._is_queued = False
        self._evaluations = _Evaluations()
        # Of the open row of evaluations: the time already counted for its steps; and the time of a
        # row that was just closed, until its last step has ended too.
        self._row_counted_ns = 0.0
        self._row_closed_ns: float | None = None
        self._smallest_batch = math.inf  # elements of the smallest training batch
        self._batches: set[tuple[int, ...]] = set()  # shapes of training batches
        self._trained: set[int] = set()
        self._called: set[int] = set()
        self._has_trained = self._has_called = self._has_batch = False
        self._loaders: dict[int, Loader] = {}
        self._iterators: dict[int, Loader] = {}
        self._latest: Loader | None = None
        self._training: Loader | None = None

    def enter(self, part: RunPartName, where: str | None = None) -> None:
        """An explicit part begins; it may lie inside another."""
        self._flush()
        self._stack.append(_Inside(part, where))

    def leave(self) -> None:
        """The innermost explicit part has ended."""
        self._flush()
        inside = self._stack.pop()
        self._tally.counts[inside.part] += 1
        self._tally.add_detail(inside.part, inside.where, inside.ns)

    def add_compiler(self, compiled_ns: Callable[[], float]) -> None:
        """Another compiler of the process: `compiled_ns` returns its time so far."""
        self._compilers.append(compiled_ns)

    def stop(self) -> None:
        """The script has ended: what boundby does from now on is not part of its run."""
        self._flush()
        ended, self._clock = self._last, lambda: ended

    def own(self, ns: float) -> None:
        """Leave out this much of the time since the last event: it was boundby's."""
        self._last += int(ns)

    def loader_started(
        self, loader: int, iterator: int, length: int | None, workers: int, where: str | None
    ) -> None:
        """A loader created an iterator; both are identified by numbers."""
        known = self._loaders.setdefault(loader, Loader())
        known.length, known.workers, known.where, known.fetched = length, workers, where, 0
        known.starts += 1
        self._iterators[iterator] = self._latest = known

    def batch_came(self, waited_ns: float, iterator: int | None = None) -> None:
        """A batch was delivered; the first one after a start of workers includes their start."""
        self._flush()
        self._has_batch = True
        loader = self._iterators.get(iterator) if iterator is not None else None
        waited = min(waited_ns, self._pending)
        self._pending -= waited
        if loader is not None:
            self._latest = loader
            loader.fetched += 1
            if loader.workers and loader.fetched == 1:
                self._tally.ns["data_start"] += waited
                self._tally.add_detail("data_start", loader.where, waited, new=False)
                return
        self._waited += waited

    def model_called(
        self,
        key: int,
        training: bool,
        *,
        in_training: bool = False,
        records: bool = False,
        where: str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """An outermost call begins; `training`: it records gradients for a backward pass.

        `in_training`: the model is in training mode. `records`: it records gradients, in whatever
        mode. `shape`: that of its input.
        """
        if training:
            if shape is not None:
                self._smallest_batch = min(self._smallest_batch, math.prod(shape))
                if len(self._batches) < _MOST_SHAPES:
                    self._batches.add(shape)
            self._closes_evaluations(is_call=True)
            self._to_step()
            self._called.add(key)
            self._training = self._latest or self._training
        else:
            found = self._evaluations
            if not found.calls:
                self._row_counted_ns, self._row_closed_ns = 0.0, None
            if not self._has_called and not found.calls:
                self._flush()
                self._tally.ns["setup"] += self._take()
            else:
                found.ns += self._take_flushed()
            is_whole = shape is not None and math.prod(shape) >= self._smallest_batch
            found.is_data |= self._has_batch or (is_whole and not found.calls)
            found.is_sampled &= shape in self._batches and not self._has_batch
            found.calls[key] += 1
            found.where = found.where or where
            found.in_training |= in_training
            found.records &= records
            found.of_trained |= key in self._trained
        self._has_called = True
        self._has_batch = False

    @property
    def in_evaluation(self) -> bool:
        return bool(self._evaluations.calls)

    def backward_begins(self) -> None:
        self._has_trained = True
        self._closes_evaluations(is_call=False)
        self._to_step()
        self._trained |= self._called
        self._called.clear()

    def step_ended(
        self,
        kind: str,
        *,
        mode: Mode = "train",
        distorted: bool = False,
        is_queued: bool = False,
    ) -> None:
        """A step has ended, of the kind with this label.

        `is_queued`: the device has not done its work yet. A script that sleeps next waits for it.
        """
        if mode == "forward":
            if self._evaluations.calls:
                self._evaluations.ns += self._take_flushed()
                self._end_in_row(kind, self._evaluations.ns)
                return
            if self._row_closed_ns is not None:
                self._end_in_row(kind, self._row_closed_ns)
                self._row_closed_ns = None
                return
        else:
            self._has_trained = True
            self._closes_evaluations(is_call=False)
        self._to_step()
        self._tally.add_step(kind, self._step_ns, distorted=distorted)
        self._step_ns = 0.0
        self._after_step = True
        self._row_closed_ns = None
        self._is_queued = is_queued
        self._cpu = self._cpu_clock()

    def start_over(self) -> None:
        """Steps are of another length from now on: pauses between the earlier ones tell nothing
        about them."""
        self._pauses.clear()

    def _end_in_row(self, kind: str, row_ns: float) -> None:
        """A step without gradients has ended, inside a row of them."""
        self._tally.row_ns[kind] += max(0.0, row_ns - self._row_counted_ns)
        self._row_counted_ns = row_ns

    @property
    def epoch_left_ns(self) -> float | None:
        """Expected time until the first epoch ends; None if unknown, or if it has ended."""
        left = self._training.left if self._training is not None else None
        return left * self._tally.usual_step_ns if left is not None else None

    @property
    def seen_epochs(self) -> int:
        """How many epochs of the training loader have ended."""
        return max(0, self._training.starts - 1) if self._training is not None else 0

    def parts(self, main_kind: str | None, *, is_cut: bool) -> RunParts:
        """The run so far, divided into parts. `is_cut`: boundby ended the script."""
        self._flush()
        rest = self._take()
        tally = self._tally.copy()
        row = self._evaluations
        if row.calls:
            tally.add_row(self._part_of(row), row.ns + rest, row.where)
        elif not is_cut:
            tally.ns["other" if tally.steps else "setup"] += rest
        left = (self._training.left or 0) if is_cut and self._training is not None else 0
        return tally.account(
            main_kind,
            trained="train" if self._has_trained else "eval",
            unfinished_ns=0.0 if is_cut else self._step_ns,
            left=left,
            scope=self._scope(left, is_cut=is_cut),
        )

    def _scope(self, left: int, *, is_cut: bool) -> str:
        steps = sum(steps.count for steps in self._tally.steps.values())
        if not is_cut:
            return "the whole run"
        # Calls of a model alone are counted as parts of the run, not as its steps.
        until = f"up to its step {steps}, where" if steps else "until"
        words = f"the run {until} boundby ended it"
        if left:
            words += f"; the {left} steps left of the epoch are extrapolated"
        elif self.seen_epochs:
            words += f", in epoch {self.seen_epochs + 1}"
        return words

    def _flush(self) -> None:
        """Add the time since the last event to the innermost interval, or keep it as pending."""
        now = self._clock()
        gone, self._last = max(0, now - self._last), now
        if self._stack:
            self._tally.ns[self._stack[-1].part] += gone
            self._stack[-1].ns += gone
        else:
            self._pending += gone

    def _take(self) -> float:
        """Return and reset the pending time, without the compile time in it."""
        compiled = 0.0
        for compiled_ns in self._compilers:  # at the end of every step: no generator
            compiled += compiled_ns()
        spent = min(self._pending + self._waited, max(0.0, compiled - self._compiled))
        self._tally.ns["compile"] += spent
        taken = self._pending + self._waited - spent
        self._compiled, self._pending, self._waited = compiled, 0.0, 0.0
        return taken

    def _take_flushed(self) -> float:
        self._flush()
        return self._take()

    def _to_step(self) -> None:
        """Add the time since the last event to the step, unless it was a pause before the step."""
        self._flush()
        pause, is_pause = self._pending, self._after_step
        compiled = self._tally.ns["compile"]
        taken = self._take()
        self._after_step = False
        if not self._has_called and not self._tally.steps and not self._step_ns:
            self._tally.ns["setup"] += taken
            self._has_called = True
            return
        if is_pause and self._is_long(pause):
            slept = self._cpu_clock() - self._cpu < _ASLEEP * pause
            if self._tally.ns["compile"] - compiled > _COMPILING * pause:
                # The rest is the compiler's as well: it reports stages, not what is between them.
                self._tally.ns["compile"] += min(pause, taken)
                taken -= min(pause, taken)
            elif not (slept and self._is_queued):
                self._tally.ns["idle" if slept else "other"] += min(pause, taken)
                taken -= min(pause, taken)
        elif is_pause and len(self._pauses) < _MOST_PAUSES:
            self._pauses.append(pause)
        self._step_ns += taken

    def _is_long(self, pause: float) -> bool:
        if pause < _LEAST_PAUSE_NS or len(self._pauses) < _FEWEST_PAUSES:
            return False
        return pause > max(_LONG_PAUSE * statistics.median(self._pauses), self._tally.usual_step_ns)

    def _closes_evaluations(self, *, is_call: bool) -> None:
        """Close a row of evaluations at a training call, a backward pass or an optimizer step.

        A few calls directly before a backward pass were the training calls, of a model in
        evaluation mode; a few calls of a model that is never trained are a teacher's; a few in
        training mode read what was just trained, or make the targets of a sampled batch.
        """
        found = self._evaluations
        if not found.calls:
            return
        found.ns += self._take_flushed()
        makes_targets = found.in_training and found.is_sampled
        evaluates = is_call and found.of_trained and not found.is_rollout and not makes_targets
        is_training = max(found.calls.values()) < _FEWEST_EVALUATIONS and not evaluates
        if is_training:
            self._step_ns += found.ns
        else:
            part: RunPartName = "rollout" if found.is_rollout else "eval"
            self._tally.add_row(part, found.ns, found.where)
            if is_call and found.records:
                self._tally.recorded_ns[part] += found.ns
            self._after_step = False
            self._row_closed_ns = found.ns
        self._evaluations = _Evaluations()

    def _part_of(self, found: _Evaluations) -> RunPartName:
        return "rollout" if found.is_rollout and self._has_trained else "eval"
