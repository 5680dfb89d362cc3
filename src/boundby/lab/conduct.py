"""Runs one experiment: predicts, measures, compares."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe
from boundby.lab.other_processes import OtherProcesses
from boundby.lab.recheck import remeasure
from boundby.model import HOST_COSTS, units
from boundby.model.lab import Interval, Measurement, Result

# Other processes on the same core slow an interpreter more than native code: when an addition in
# Python took 2.15 times as long, one in torch took 1.72 times, a bare launch 1.46.
_NATIVE = 0.5
# A roof that differs by more than this now is named as a reason.
_CHANGED = 1.10


def conduct(
    experiment: Experiment,
    bench: Bench,
    on_prediction: Callable[[Predictions], None] = lambda _: None,
) -> Result:
    """Predict, report, measure, compare. The prediction is made before the measurement begins."""
    began, others = time.perf_counter(), OtherProcesses()
    bench.host_speed.begin()
    probe = experiment.probe(bench) if experiment.probe else Probe()
    predicted = experiment.predict(bench.machine, probe)
    on_prediction(predicted)
    observation = experiment.measure(bench, probe)
    bench.host_speed.settle()
    at_speed = at_measured_speed(experiment, bench, probe, predicted)
    measured = judge(at_speed, observation)
    misses = [name for name, figure in measured.items() if figure.held is False]
    judged = [figure for figure in measured.values() if figure.held is not None]
    why = observation.summary or "every figure is in its predicted range"
    held_at_speed = [
        name
        for name, figure in measured.items()
        if figure.held and not predicted[name].overlaps(figure)
    ]
    disturbed = [*filter(None, (bench.host_speed.words(bench.machine), others.words()))]
    if misses or held_at_speed:
        explanations = [
            _explain(name, predicted, at_speed, observation) for name in misses + held_at_speed
        ]
        why = "; ".join([*explanations, *disturbed] if misses else [why, *explanations, *disturbed])
    if misses:
        why += _explain_by_roofs(experiment, bench, probe, predicted, measured, misses)
    unmeasured = [predicted[name].what for name in predicted if name not in measured]
    notes = observation.notes + ([] if misses or held_at_speed else disturbed)
    notes += [f"not measured: {what}" for what in unmeasured]
    return Result(
        name=experiment.name,
        title=experiment.title,
        claim=experiment.claim,
        outcome="not run" if not judged else "not held" if misses else "held",
        predicted=predicted,
        measured=measured,
        held=not misses if judged else None,
        why=why,
        notes=notes,
        plots=observation.plots,
        seconds=time.perf_counter() - began,
    )


def judge(predicted: Predictions, observation: Measured) -> dict[str, Measurement]:
    """Every measured figure, and whether its interval overlaps the predicted one."""
    measured = {
        name: Measurement(
            what=predicted[name].what,
            unit=predicted[name].unit,
            low=found.low,
            value=found.value,
            high=found.high,
            held=predicted[name].overlaps(found),
        )
        for name, found in observation.found.items()
        if name in predicted
    }
    return measured | observation.also


def at_measured_speed(
    experiment: Experiment, bench: Bench, probe: Probe, predicted: Predictions
) -> Predictions:
    """The prediction at the measured host speeds, if it depends on the host."""
    slowdown = bench.host_speed.relative_to(bench.machine)
    if slowdown is None:
        return predicted
    fast, usual, slow = (
        experiment.predict(bench.machine.with_host_slowdown(factor), probe)
        for factor in (
            min(slowdown.low, slowdown.low**_NATIVE),
            slowdown.value,
            max(slowdown.high, slowdown.high**_NATIVE),
        )
    )
    return {
        name: msgspec.structs.replace(
            prediction,
            low=min(fast[name].low, slow[name].low),
            value=usual[name].value,
            high=max(fast[name].high, slow[name].high),
        )
        if set(prediction.rests_on) & set(HOST_COSTS)
        else prediction
        for name, prediction in predicted.items()
    }


def _explain(
    name: str, predicted: Predictions, at_speed: Predictions, observation: Measured
) -> str:
    prediction = predicted[name]
    unit = prediction.unit
    words = f"{prediction.what}: predicted {units.quantity(prediction.value, unit)}"
    if at_speed[name].value != prediction.value:
        words += f" ({units.quantity(at_speed[name].value, unit)} at the measured host speed)"
    words += f", measured {units.quantity(observation.found[name].value, unit)}"
    reason = observation.reasons.get(name)
    return f"{words}, because {reason}" if reason else words


def _explain_by_roofs(
    experiment: Experiment,
    bench: Bench,
    probe: Probe,
    predicted: Predictions,
    measured: dict[str, Measurement],
    misses: list[str],
) -> str:
    """Whether the present machine, instead of the saved one, would have predicted the result."""
    names = sorted({name for miss in misses for name in predicted[miss].rests_on})
    if not names:
        return ""
    now, changes = remeasure(bench, names)
    changes = {
        name: change
        for name, change in changes.items()
        if not 1 / _CHANGED <= change[1] / change[0] <= _CHANGED
    }
    if not changes:
        return "; its roofs, measured again, are unchanged"
    slowdown = bench.host_speed.relative_to(bench.machine)
    words = ", ".join(
        f"{name} {new / old:.2f} times the saved value"
        + (
            " (the host's speed)"
            if slowdown and name in HOST_COSTS and _is_explained_by(slowdown, new / old)
            else ""
        )
        for name, (old, new) in changes.items()
    )
    repeated = experiment.predict(now, probe)
    explained = [
        name for name in misses if name in repeated and repeated[name].overlaps(measured[name])
    ]
    if len(explained) == len(misses):
        return f"; the machine has changed ({words}): with the present roofs it holds"
    return f"; measured again, the machine has changed ({words}), which does not explain all of it"


def _is_explained_by(slowdown: Interval, factor: float) -> bool:
    return slowdown.low / _CHANGED <= factor <= slowdown.high * _CHANGED


def failed(experiment: Experiment, reason: str) -> Result:
    """An experiment that failed."""
    return Result(
        name=experiment.name,
        title=experiment.title,
        claim=experiment.claim,
        outcome="failed",
        why=reason,
    )


def with_predictions(result: Result, predicted: Predictions) -> Result:
    return msgspec.structs.replace(result, predicted=predicted)
