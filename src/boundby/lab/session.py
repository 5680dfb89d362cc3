"""A run of experiments on one machine: selection, order, and results so far."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from boundby.lab import EXPERIMENTS, worker
from boundby.lab.conduct import with_predictions
from boundby.lab.experiment import Experiment, Predictions
from boundby.model import Machine
from boundby.model.lab import LabReport, Result

Progress = Callable[[str, float], None]


def choose(names: Sequence[str]) -> list[Experiment]:
    """The named experiments, or all of them; raises for a wrong name before anything is run."""
    return [worker.find(name) for name in names] or list(EXPERIMENTS)


class Session:
    """Collects results as they arrive, so that finished ones are kept if the rest is
    interrupted."""

    def __init__(
        self, machine: Machine, device: str, chosen: Sequence[Experiment], *, quick: bool
    ) -> None:
        self._machine = machine
        self._chosen = list(chosen)
        self._quick = quick
        self._results: dict[str, Result] = {}
        self._predicted: dict[str, Predictions] = {}
        # Experiments that slow their process come last, the others in order.
        ordered = sorted(self._chosen, key=lambda experiment: experiment.marks_process)
        self._request = worker.Request(
            machine=machine, device=device, names=[each.name for each in ordered], quick=quick
        )

    def run(self, progress: Progress) -> None:
        total = sum(each.seconds for each in self._chosen)
        weights = {each.name: each.seconds / total for each in self._chosen}
        done, ticks = 0.0, 0
        for message in worker.messages(self._request):
            match message:
                case worker.Began(name):
                    ticks = 0
                    progress(name, done)
                case worker.Predicted(name, predicted):
                    self._predicted[name] = predicted
                case worker.Advanced(name):
                    ticks += 1
                    # The number is unknown: approach the end without reaching it.
                    progress(name, done + weights[name] * ticks / (ticks + 10))
                case worker.Finished(result):
                    self._keep(result)
                    done += weights[result.name]
                    progress(result.name, done)

    def _keep(self, result: Result) -> None:
        if not result.predicted and result.name in self._predicted:
            result = with_predictions(result, self._predicted[result.name])
        self._results[result.name] = result

    def report(self, *, interrupted: bool = False) -> LabReport:
        """All results so far, in the order of the list."""
        return LabReport(
            machine=self._machine,
            results=[
                self._results[each.name] for each in self._chosen if each.name in self._results
            ],
            run_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            quick=self._quick,
            interrupted=interrupted,
        )
