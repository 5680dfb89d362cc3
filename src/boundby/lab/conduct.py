"""Run one experiment: predict, measure, judge."""

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
    experiment: Experiment, bench: Bench, told: Callable[[Predictions], None] = lambda _: None
) -> Result:
    """Predict, report, measure, judge. The prediction is made before the measurement begins."""
    began, others = time.perf_counter(), OtherProcesses()
    bench.host_speed.begin()
    probe = experiment.probe(bench) if experiment.probe else Probe()
    predicted = experiment.predict(bench.machine, probe)
    told(predicted)
    observation = experiment.measure(bench, probe)
    bench.host_speed.settle()
    law = at_measured_speed(experiment, bench, probe, predicted)
    measured = judge(law, observation)
    misses = [name for name, found in measured.items() if found.held is False]
    judged = [found for found in measured.values() if found.held is not None]
    why = observation.summary or "every figure lies where it was predicted"
    rescued = [
        name
        for name, found in measured.items()
        if found.held and not predicted[name].overlaps(found)
    ]
    disturbed = [*filter(None, (bench.host_speed.words(bench.machine), others.words()))]
    if misses or rescued:
        said = [_explain(name, predicted, law, observation) for name in misses + rescued]
        why = "; ".join([*said, *disturbed] if misses else [why, *said, *disturbed])
    if misses:
        why += _explain_by_roofs(experiment, bench, probe, predicted, measured, misses)
    unmeasured = [predicted[name].what for name in predicted if name not in measured]
    notes = observation.notes + ([] if misses or rescued else disturbed)
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
    """The law's prediction at the host speeds that were measured, if it depends on the host."""
    seen = bench.host_speed.relative_to(bench.machine)
    if seen is None:
        return predicted
    fast, usual, slow = (
        experiment.predict(bench.machine.with_host_slowdown(factor), probe)
        for factor in (
            min(seen.low, seen.low**_NATIVE),
            seen.value,
            max(seen.high, seen.high**_NATIVE),
        )
    )
    return {
        name: msgspec.structs.replace(
            law,
            low=min(fast[name].low, slow[name].low),
            value=usual[name].value,
            high=max(fast[name].high, slow[name].high),
        )
        if set(law.rests_on) & set(HOST_COSTS)
        else law
        for name, law in predicted.items()
    }


def _explain(
    name: str, predicted: Predictions, at_speed: Predictions, observation: Measured
) -> str:
    law = predicted[name]
    words = f"{law.what}: predicted {units.quantity(law.value, law.unit)}"
    if at_speed[name].value != law.value:
        words += f" ({units.quantity(at_speed[name].value, law.unit)} at the measured host speed)"
    words += f", found {units.quantity(observation.found[name].value, law.unit)}"
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
        return "; the roofs behind it, measured again, are as saved"
    seen = bench.host_speed.relative_to(bench.machine)
    words = ", ".join(
        f"{name} {new / old:.2f} times what was saved"
        + (
            " as the host's speed"
            if seen and name in HOST_COSTS and _meets(seen, new / old)
            else ""
        )
        for name, (old, new) in changes.items()
    )
    again = experiment.predict(now, probe)
    repeated_hits = [
        name for name in misses if name in again and again[name].overlaps(measured[name])
    ]
    if len(repeated_hits) == len(misses):
        return f"; the machine has changed ({words}): with its roofs as they are now, it holds"
    return f"; measured again, the machine has changed ({words}), which does not explain it all"


def _meets(seen: Interval, factor: float) -> bool:
    return seen.low / _CHANGED <= factor <= seen.high * _CHANGED


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
