"""Divides a script's life into parts, from events that the hooks see anyway.

Pure bookkeeping on clocks that are handed in. Some parts are told explicitly, as intervals that may
nest (`enter`, `leave`): imports, checkpoints, logging, workers that start. The rest is divided by
what comes next: what lies between two events belongs to the later one, because a batch is fetched
for the call that follows it. Boundby's own time is taken out.

Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boundby.model.run import RunPartName, RunParts
    from boundby.model.step_kind import Mode

# From this many calls without gradients in a row on, they are not a teacher's or a target
# network's, which belong to the training step.
_FEWEST_EVALUATIONS = 3
# A pause between two steps is no part of them if it is this much longer than usual, longer than a
# step, and long enough to matter.
_LONG_PAUSE = 5.0
_LEAST_PAUSE_NS = 50e6
_FEWEST_PAUSES = 5
_MOST_PAUSES = 200
# Below this share of a pause on a core, the script waited for something.
_ASLEEP = 0.5
# A first step that takes this much longer than usual sets things up.
_FIRST_STEP = 3.0
_MOST_DETAILS = 20


@dataclass(slots=True)
class _Steps:
    """Steps of one kind: those as they are, and those that a profiler or syncs made longer."""

    clean_ns: list[float] = field(default_factory=list)
    distorted: int = 0

    @property
    def usual_ns(self) -> float:
        return statistics.median(self.clean_ns) if self.clean_ns else 0.0

    @property
    def count(self) -> int:
        return len(self.clean_ns) + self.distorted


@dataclass(slots=True)
class _Evaluations:
    """Calls in evaluation mode or without gradients in a row. `records`: all record gradients."""

    calls: int = 0
    ns: float = 0.0
    is_rollout: bool = False
    of_trained: bool = False
    records: bool = True
    where: str | None = None


@dataclass(slots=True)
class _Inside:
    """An explicit part that has begun."""

    part: RunPartName
    where: str | None
    ns: float = 0.0


@dataclass(slots=True)
class Loader:
    """A loader that batches were taken from: how many it has, how many came since it started."""

    length: int | None = None
    workers: int = 0
    where: str | None = None
    starts: int = 0
    fetched: int = 0


class RunClock:
    """`compiled_ns` tells how long the process has compiled so far."""

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
        compiled_ns: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._clock, self._cpu_clock, self._compiled_ns = clock, cpu_clock, compiled_ns
        self._last = self._now = clock()
        self._cpu = cpu_clock()
        self._compiled = 0.0
        self._pending = 0.0  # time since the last event, outside explicit parts
        self._waited = 0.0  # of a batch that came, which belongs to what it is for
        self._stack: list[_Inside] = []
        self._ns: dict[RunPartName, float] = defaultdict(float)
        self._counts: dict[RunPartName, int] = defaultdict(int)
        # In rows whose calls record gradients, and that no backward pass follows at once.
        self._recorded_ns: dict[RunPartName, float] = defaultdict(float)
        self._details: dict[RunPartName, dict[str, list[float]]] = defaultdict(dict)
        self._steps: dict[str, _Steps] = {}
        self._step_ns = 0.0
        self._first_kind: str | None = None
        self._pauses: list[float] = []
        self._after_step = False
        self._is_queued = False
        self._evaluations = _Evaluations()
        # Time in rows of evaluations by the kind of their steps; how much of the open row is in it;
        # and the time of a row that was just closed, until its last step has ended too.
        self._row_ns: dict[str, float] = defaultdict(float)
        self._row_counted_ns = 0.0
        self._row_closed_ns: float | None = None
        self._trained: set[int] = set()
        self._called: set[int] = set()
        self._has_trained = self._has_called = False
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
        self._counts[inside.part] += 1
        self._add_detail(inside.part, inside.where, inside.ns)

    def own(self, ns: float) -> None:
        """So much of the time just gone was boundby's."""
        self._last += int(ns)

    def loader_started(
        self, loader: int, iterator: int, length: int | None, workers: int, where: str | None
    ) -> None:
        """A loader gave out an iterator; both are known by numbers."""
        known = self._loaders.setdefault(loader, Loader())
        known.length, known.workers, known.where, known.fetched = length, workers, where, 0
        known.starts += 1
        self._iterators[iterator] = self._latest = known

    def batch_came(self, waited_ns: float, iterator: int | None = None) -> None:
        """A batch was handed over; the first after workers started waits for their start too."""
        self._flush()
        loader = self._iterators.get(iterator) if iterator is not None else None
        waited = min(waited_ns, self._pending)
        self._pending -= waited
        if loader is not None:
            self._latest = loader
            loader.fetched += 1
            if loader.workers and loader.fetched == 1:
                self._ns["data_start"] += waited
                self._add_detail("data_start", loader.where, waited, new=False)
                return
        self._waited += waited

    def model_called(
        self,
        key: int,
        training: bool,
        *,
        is_rollout: bool = False,
        records: bool = False,
        where: str | None = None,
    ) -> None:
        """An outermost call begins; `training`: it records gradients for a backward pass.

        `records`: it records gradients, in whatever mode.
        """
        if training:
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
                self._ns["setup"] += self._take()
            else:
                found.ns += self._take_flushed()
            found.calls += 1
            found.where = found.where or where
            found.is_rollout |= is_rollout
            found.records &= records
            found.of_trained |= key in self._trained
        self._has_called = True

    @property
    def in_evaluation(self) -> bool:
        return self._evaluations.calls > 0

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
        steps = self._steps.setdefault(kind, _Steps())
        if distorted:
            steps.distorted += 1
        else:
            steps.clean_ns.append(self._step_ns)
        self._first_kind = self._first_kind or kind
        self._step_ns = 0.0
        self._after_step = True
        self._row_closed_ns = None
        self._is_queued = is_queued
        self._cpu = self._cpu_clock()

    def _end_in_row(self, kind: str, row_ns: float) -> None:
        """A step without gradients has ended, inside a row of them."""
        self._row_ns[kind] += max(0.0, row_ns - self._row_counted_ns)
        self._row_counted_ns = row_ns

    @property
    def epoch_left_ns(self) -> float | None:
        """How long the training epoch goes on; None where nobody knows, or one was seen whole."""
        loader = self._training
        if loader is None or loader.length is None or loader.starts != 1:
            return None
        usual = max((steps.usual_ns for steps in self._steps.values()), default=0.0)
        return max(0, loader.length - loader.fetched) * usual

    @property
    def seen_epochs(self) -> int:
        """How often the training loader was used up."""
        return max(0, self._training.starts - 1) if self._training is not None else 0

    def parts(self, main_kind: str | None, *, is_cut: bool) -> RunParts:
        """The account so far. `is_cut`: the script was ended before its own end."""
        from boundby.model.run import RunPart, RunParts

        self._flush()
        rest = self._take()
        ns, details = dict(self._ns), {name: _copied(one) for name, one in self._details.items()}
        counts = dict(self._counts)
        open_ = self._evaluations
        if open_.calls:
            part = self._part_of(open_)
            ns[part] = ns.get(part, 0.0) + open_.ns + rest
            counts[part] = counts.get(part, 0) + 1
            if open_.where is not None:
                details.setdefault(part, {}).setdefault(open_.where, []).append(open_.ns + rest)
            rest = 0.0
        trained: RunPartName = "train" if self._has_trained else "eval"
        stepped = sum(self._total_ns(kind) for kind in self._steps)
        setup = self._first_step_setup()
        ns["setup"] = ns.get("setup", 0.0) + setup
        unfinished = self._step_ns if not is_cut else 0.0
        ns[trained] = ns.get(trained, 0.0) + stepped - setup + unfinished
        if not is_cut:
            after: RunPartName = "other" if self._steps or open_.calls else "setup"
            ns[after] = ns.get(after, 0.0) + rest
        left = self._left() if is_cut else 0
        steps = sum(steps.count for steps in self._steps.values()) + left
        usual = self._steps[main_kind].usual_ns if main_kind in self._steps else 0.0
        ns[trained] += left * usual
        total = sum(ns.values())
        main_ns: float | None = None
        if main_kind in self._row_ns:
            # Rows before the first update were not divided into steps.
            in_rows = self._row_ns[main_kind] / sum(self._row_ns.values())
            main_ns = in_rows * (ns.get("rollout", 0.0) + ns.get("eval", 0.0))
        if main_kind in self._steps:
            main_ns = self._total_ns(main_kind) + left * usual + (main_ns or 0.0)
        parts = [
            RunPart(
                name=name,
                ns=spent,
                share=spent / total if total else 0.0,
                extrapolated=bool(left) and name == trained,
                count=steps if name == trained and self._steps else counts.get(name, 0),
                repeated_ns=sum(sum(one[1:]) for one in details.get(name, {}).values()),
                recorded_ns=self._recorded_ns.get(name, 0.0),
                details=_longest(details.get(name, {})),
            )
            for name, spent in ns.items()
            if spent > 0
        ]
        return RunParts(
            wall_ns=total,
            parts=sorted(parts, key=lambda part: -part.ns),
            step_share=main_ns / total if main_ns is not None and total else None,
            scope=self._scope(left, is_cut=is_cut),
        )

    def _scope(self, left: int, *, is_cut: bool) -> str:
        steps = sum(steps.count for steps in self._steps.values())
        if not is_cut:
            return "the whole run"
        words = f"the run up to its step {steps}, where boundby ended it"
        if left:
            words += f"; the {left} steps left of the epoch are extrapolated"
        elif self.seen_epochs:
            words += f", in epoch {self.seen_epochs + 1}"
        return words

    def _left(self) -> int:
        loader = self._training
        if loader is None or loader.length is None or loader.starts != 1:
            return 0
        return max(0, loader.length - loader.fetched)

    def _total_ns(self, kind: str) -> float:
        steps = self._steps[kind]
        return sum(steps.clean_ns) + steps.distorted * steps.usual_ns

    def _first_step_setup(self) -> float:
        """What the first step took beyond what its kind takes."""
        steps = self._steps.get(self._first_kind or "")
        if steps is None or len(steps.clean_ns) < 2:
            return 0.0
        extra = steps.clean_ns[0] - steps.usual_ns
        return extra if steps.clean_ns[0] > _FIRST_STEP * steps.usual_ns else 0.0

    def _flush(self) -> None:
        """What has gone by goes to the innermost explicit part, or waits for the next event."""
        now = self._clock()
        gone, self._last = max(0, now - self._last), now
        if self._stack:
            self._ns[self._stack[-1].part] += gone
            self._stack[-1].ns += gone
        else:
            self._pending += gone

    def _take(self) -> float:
        """The pending time, without what the compiler had of it."""
        compiled = self._compiled_ns()
        spent = min(self._pending + self._waited, max(0.0, compiled - self._compiled))
        self._ns["compile"] += spent
        taken = self._pending + self._waited - spent
        self._compiled, self._pending, self._waited = compiled, 0.0, 0.0
        return taken

    def _take_flushed(self) -> float:
        self._flush()
        return self._take()

    def _to_step(self) -> None:
        """What has gone by since the last event belongs to the step, or is a pause before it."""
        self._flush()
        pause, is_pause = self._pending, self._after_step
        taken = self._take()
        self._after_step = False
        if not self._has_called and not self._steps and not self._step_ns:
            self._ns["setup"] += taken
            self._has_called = True
            return
        if is_pause and self._is_long(pause):
            slept = self._cpu_clock() - self._cpu < _ASLEEP * pause
            if not (slept and self._is_queued):
                self._ns["idle" if slept else "other"] += min(pause, taken)
                taken -= min(pause, taken)
        elif is_pause and len(self._pauses) < _MOST_PAUSES:
            self._pauses.append(pause)
        self._step_ns += taken

    def _is_long(self, pause: float) -> bool:
        if pause < _LEAST_PAUSE_NS or len(self._pauses) < _FEWEST_PAUSES:
            return False
        usual = max(steps.usual_ns for steps in self._steps.values())
        return pause > max(_LONG_PAUSE * statistics.median(self._pauses), usual)

    def _closes_evaluations(self, *, is_call: bool) -> None:
        """A training call, a backward pass or an optimizer's step ends a row of evaluations.

        A few calls that a backward pass follows at once were the training calls, of a model in
        evaluation mode; a few of a model that is never trained are a teacher's; a few in training
        mode look at what was just trained.
        """
        found = self._evaluations
        if not found.calls:
            return
        found.ns += self._take_flushed()
        evaluates = is_call and found.of_trained and not found.is_rollout
        is_training = found.calls < _FEWEST_EVALUATIONS and not evaluates
        if is_training:
            self._step_ns += found.ns
        else:
            part: RunPartName = "rollout" if found.is_rollout else "eval"
            self._ns[part] += found.ns
            self._counts[part] += 1
            if is_call and found.records:
                self._recorded_ns[part] += found.ns
            self._add_detail(part, found.where, found.ns)
            self._after_step = False
            self._row_closed_ns = found.ns
        self._evaluations = _Evaluations()

    def _part_of(self, found: _Evaluations) -> RunPartName:
        return "rollout" if found.is_rollout and self._has_trained else "eval"

    def _add_detail(
        self, part: RunPartName, where: str | None, ns: float, *, new: bool = True
    ) -> None:
        if where is None:
            return
        known = self._details[part]
        if where in known and not new and known[where]:
            known[where][-1] += ns
        elif where in known or len(known) < _MOST_DETAILS:
            known.setdefault(where, []).append(ns)


def _copied(details: dict[str, list[float]]) -> dict[str, list[float]]:
    return {where: list(times) for where, times in details.items()}


def _longest(details: dict[str, list[float]]) -> dict[str, float]:
    """Sums, the largest first."""
    sums = {where: sum(times) for where, times in details.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
