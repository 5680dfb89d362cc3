"""Experiments on programs that exist only as numbers: processes differ, steps differ in them."""

from collections.abc import Mapping, Sequence

import numpy as np

from boundby.prove.combination import Candidate, Foresee
from boundby.prove.results import TrialStore
from boundby.prove.scheduler import Schedule
from boundby.prove.trial_result import Notes, TrialResult

SECONDS = 12.0


def candidate(name: str, **known: object) -> Candidate:
    return Candidate(key=f"{name}/{name}", faults=(name,), change=f"# {name}", **known)  # type: ignore[arg-type]


class Program:
    """`gains` are true speed-ups by key; together they multiply.

    `drift`: by how much the machine's own pace changes from one process to the next, and stays so.
    """

    def __init__(
        self,
        gains: Mapping[str, float],
        *,
        seed: int,
        processes: float = 0.035,
        steps: float = 0.02,
        drift: float = 0.0,
        broken: Sequence[str] = (),
        wrong: Sequence[str] = (),
        longer_s: Mapping[str, float] | None = None,
    ) -> None:
        self._gains = gains
        self._longer_s = longer_s or {}
        self._random = np.random.default_rng(seed)
        self._processes = processes
        self._steps = steps
        self._drift = drift
        self._pace = 0.0
        self._broken = broken
        self._wrong = wrong

    def observe(self, arm: Sequence[str], reference: bool, seed: int) -> TrialResult:
        wall = 50e6
        for key in arm:
            wall /= self._gains[key]
        self._pace += self._random.normal(0, self._drift) if self._drift else 0.0
        wall *= np.exp(self._pace + self._random.normal(0, self._processes))
        samples = wall * np.exp(np.abs(self._random.normal(0, self._steps, size=15)))
        off = 1.01 if any(key in self._wrong for key in arm) else 1.0
        return TrialResult(
            arm=list(arm),
            reference=reference,
            seed=seed,
            seconds=SECONDS + sum(self._longer_s.get(key, 0.0) for key in arm),
            kind="train",
            samples_ns=samples.tolist(),
            notes=Notes(losses=[[2.0 * off]] * 7, gradients=[1.0, 2.0]),
            touched={"something": 1},
            problem="broken" if any(key in self._broken for key in arm) else None,
        )


def experiment(
    candidates: Sequence[Candidate],
    program: Program,
    budget_s: float = 600.0,
    foresee: Foresee = lambda _: None,
) -> tuple[TrialStore, Schedule, list[tuple[str, ...]]]:
    ledger = TrialStore()
    schedule = Schedule(candidates, ledger, budget_s, foresee)
    order = []
    elapsed = 0.0
    while (step := schedule.next(elapsed)) is not None:
        seen = program.observe(step.arm, step.reference, len(ledger.tried(step.arm)) + 1)
        ledger.add(seen)
        elapsed += seen.seconds
        if not step.reference:
            order.append(step.arm)
    return ledger, schedule, order
