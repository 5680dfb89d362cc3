"""Scales host times: to clean phases, to a wall time, or by a factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from boundby.model import Phase
from boundby.model.assumptions.host import HOST_SCALE_LIMIT
from boundby.step.simulator.launch_sequence import Floats, LaunchSequence, Wait
from boundby.step.simulator.simulate import issue_ns, replay
from boundby.step.simulator.waits import NOTHING

# For groups of phases: their clean time, and the factor of their host times, None if unknown.
Clean = dict[tuple[Phase, ...], float]
Factors = dict[tuple[Phase, ...], float | None]

_FASTEST, _SLOWEST = 0.02, 3.0  # range of the bisection, as factors of the profiled host time
# The host limits the step if a slower host makes it longer by at least half as much.
_NUDGE, _HOST_BOUND = 1.05, 0.5
_LEAST, _MOST = 0.6, 1.6  # assumed: beyond these factors another host speed does not explain a step
_CLOSE = 0.01  # relative tolerance of the bisection
# Phases of the timeline, and their names in the clean measurement.
_CLEAN_PHASES: dict[tuple[Phase, ...], tuple[str, ...]] = {
    (Phase.FORWARD, Phase.OTHER): ("forward", "other"),
    (Phase.BACKWARD,): ("backward",),
    (Phase.OPTIMIZER,): ("optimizer",),
}


def with_clean_phases(launches: LaunchSequence, clean: dict[str, float]) -> LaunchSequence:
    """Host times scaled to the measured clean time of each phase, starting with an idle device.

    A phase may wait for the device in the middle, so its time is not proportional to the host
    times. The factor is the one with which the phase, simulated alone, takes as long as measured. A
    long phase may fill the launch queue; the device then sets its time, and it gets the factor of
    the other phases.
    """
    clean_ns = {
        phases: sum(clean.get(name, 0.0) for name in names)
        for phases, names in _CLEAN_PHASES.items()
    }
    factors = _factors(launches, clean_ns)
    usual = _usual_factor(launches, factors)
    launches = _with_data(launches, clean_ns, factors, usual)
    by_action, after = np.ones(len(launches.host_ns)), launches.after_ns
    for phases, factor in factors.items():
        used = usual if factor is None else factor
        by_action[np.isin(launches.phase, phases)] = used
        if Phase.FORWARD in phases:
            after *= used
    return replace(launches, host_ns=launches.scaled(by_action), after_ns=after)


def _factors(launches: LaunchSequence, clean_ns: Clean) -> Factors:
    """For each measured phase the factor of its host times; None if it cannot be determined."""
    factors: Factors = {}
    for phases, measured in clean_ns.items():
        in_phases = np.isin(launches.phase, phases)
        if measured and in_phases.any():
            phase_alone = _phase_only(launches, in_phases, keep_after=Phase.FORWARD in phases)
            blocked = issue_ns(with_host(phase_alone, _FASTEST)) > HOST_SCALE_LIMIT.value * measured
            factors[phases] = None if blocked else _factor(phase_alone, measured)
    return factors


def _with_data(
    launches: LaunchSequence, clean_ns: Clean, factors: Factors, usual: float
) -> LaunchSequence:
    """Waits for data scaled down if a profiled phase waited longer than the clean phase took.

    Batches arrive irregularly, and a profiled step may have met a late one.
    """
    if not launches.data_ns.any():
        return launches
    for phases in (phases for phases, factor in factors.items() if factor is None):
        in_phases = np.isin(launches.phase, phases)
        phase_alone = _phase_only(launches, in_phases, keep_after=Phase.FORWARD in phases)

        def takes(part: float, alone: LaunchSequence = phase_alone) -> float:
            return issue_ns(with_host(_with_waits_scaled(alone, part), usual))

        if takes(1.0) > clean_ns[phases]:
            part = _search(takes, clean_ns[phases], slowest=1.0)
            launches = _with_waits_scaled(launches, np.where(in_phases, part, 1.0))
    return launches


def _with_waits_scaled(launches: LaunchSequence, part: float | Floats) -> LaunchSequence:
    """The same step with only a part of each wait for data."""
    data_wait = np.minimum(launches.data_ns, launches.host_ns)
    return replace(
        launches, host_ns=launches.host_ns - (1 - part) * data_wait, data_ns=part * data_wait
    )


def _usual_factor(
    launches: LaunchSequence, factors: dict[tuple[Phase, ...], float | None]
) -> float:
    """The usual factor over the phases for which it is known."""
    before = after = 0.0
    for phases, factor in factors.items():
        if factor is not None:
            host = float(launches.host_ns[np.isin(launches.phase, phases)].sum())
            before += host
            after += host * factor
    return after / before if before else 1.0


def with_host(launches: LaunchSequence, factor: float) -> LaunchSequence:
    """The same step with all host times scaled by a factor."""
    return replace(launches, host_ns=launches.scaled(factor), after_ns=launches.after_ns * factor)


def with_wall(launches: LaunchSequence, wall_ns: float) -> LaunchSequence:
    """Host times scaled down so that the step takes a given time.

    For traces, where nothing else is known about the host without a profiler. The simulated time of
    the unchanged step is then correct by construction and confirms nothing; that of an edited step
    is a prediction.
    """
    factor = _search(lambda tried: replay(with_host(launches, tried)), wall_ns)
    return with_host(launches, factor)


def explaining_host(launches: LaunchSequence, wall_ns: float) -> float | None:
    """The factor of all host times with which the step takes as long as it did.

    The host was timed in other steps, in which its speed may have been different. None if the host
    does not limit the step, or would have to be much faster or slower.
    """
    factor, takes = 1.0, replay(launches)
    for _ in range(3):
        nudged = replay(with_host(launches, factor * _NUDGE))
        share = (nudged / takes - 1) / (_NUDGE - 1)
        if share < _HOST_BOUND:
            return None
        factor *= 1 + (wall_ns / takes - 1) / share
        if not _LEAST < factor < _MOST:
            return None
        takes = replay(with_host(launches, factor))
        if abs(takes / wall_ns - 1) < _CLOSE:
            # If a faster host gives the same time, the device limits the step.
            relieved = replay(with_host(launches, factor / _NUDGE))
            return factor if 1 - relieved / takes > _HOST_BOUND * (1 - 1 / _NUDGE) else None
    return None


def _factor(launches: LaunchSequence, measured: float) -> float:
    """The factor with which a phase takes this long; longer host times make it longer."""
    return _search(lambda tried: issue_ns(with_host(launches, tried)), measured)


def _search(takes: Callable[[float], float], wanted: float, *, slowest: float = _SLOWEST) -> float:
    """The factor with which `takes` returns the wanted time, by bisection."""
    low, high = _FASTEST, slowest
    for _ in range(24):
        middle = (low + high) / 2
        if takes(middle) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _phase_only(
    launches: LaunchSequence, in_phases: npt.NDArray[np.bool_], *, keep_after: bool
) -> LaunchSequence:
    """The actions of one phase, with the device work that they issue."""
    actions = np.flatnonzero(in_phases)
    counts = np.diff(launches.first)[actions]
    work = np.concatenate(
        [np.arange(launches.first[a], launches.first[a + 1]) for a in actions] or [np.empty(0, int)]
    ).astype(np.int64)
    wait, until = launches.wait[actions], launches.until
    if len(until):
        placed = np.full(len(launches.device_ns) + 1, NOTHING, np.int64)
        placed[work] = np.arange(len(work))
        until = until[actions]
        until = np.where(until >= 0, placed[until], until)
        # Work that another phase issued has ended: each phase begins with an idle device.
        wait = np.where(until == NOTHING, np.int8(Wait.NOTHING), wait)
    return replace(
        launches,
        host_ns=launches.host_ns[actions],
        data_ns=launches.data_ns[actions] if len(launches.data_ns) else launches.data_ns,
        wait=wait,
        until=until,
        phase=launches.phase[actions],
        first=np.concatenate([[0], np.cumsum(counts)]),
        after_ns=launches.after_ns if keep_after else 0.0,
        device_ns=launches.device_ns[work],
        stream=launches.stream[work],
        depends=np.full(len(work), -1, np.int64),
        order=launches.order[work],
        rows=launches.rows[actions] if len(launches.rows) else launches.rows,
    )
