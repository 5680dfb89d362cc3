"""A program with known step times under each fix, and a clock of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

from boundby.model.estimate import Estimate
from boundby.model.proof import Numerics
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence, Variant
from boundby.prove.rounds import Block, BlockResult, Check, Reply
from boundby.prove.search import Search

FINE = Numerics(ok=True, why="outputs within 1 ppm")


def candidate(
    name: str,
    *,
    preparation_s: float = 0.0,
    slot: str = "",
    without_finding: bool = False,
    predicted: Estimate | None = None,
    excludes: Sequence[str] = (),
    keeps_compiled: bool = False,
) -> Candidate:
    return Candidate(
        key=f"fault-{name}/{name}",
        faults=(f"fault-{name}",),
        change=f"# {name}",
        preparation_s=preparation_s,
        slot=slot,
        without_finding=without_finding,
        predicted=predicted,
        keeps_compiled=keeps_compiled,
        excludes=frozenset(f"fault-{one}" for one in excludes),
    )


class Simulated:
    """Fixes multiply the step time, whatever else is applied; noise is per block and per step.

    `fixed_s` are times of a step that only the fix of that name removes.
    """

    def __init__(
        self,
        ratios: Mapping[str, float],
        *,
        step_s: float = 0.1,
        block_sd: float = 0.0,
        seed: int = 0,
        first_use_s: Mapping[str, float] | None = None,
        failing: Sequence[str] = (),
        wrong: Sequence[str] = (),
        unverified: Sequence[str] = (),
        idle: Sequence[str] = (),
        late: Sequence[str] = (),
        fixed_s: Mapping[str, float] | None = None,
        pace: Callable[[float], float] = lambda now_s: 1.0,
    ) -> None:
        """`idle`: change nothing; `late`: change nothing in the first step; `pace`: of the host."""
        self.clock = 0.0
        self.blocks: list[Block] = []
        self._ratios = ratios
        self._step_s = step_s
        self._pace = pace
        self._block_sd = block_sd
        self._random = random.Random(seed)
        self._first_use_s = dict(first_use_s or {})
        self._fixed_s = fixed_s or {}
        self._idle, self._late = idle, set(late)
        self._failing, self._wrong, self._unverified = failing, wrong, unverified

    def search(
        self,
        candidates: Sequence[Candidate],
        *,
        budget_s: float = 300.0,
        accept_unverified: bool = False,
        evidence: Evidence | None = None,
        timed: Variant | None = None,
        reserved_s: float = 0.0,
        start_gain: float = 1.0,
        max_steps: int | None = None,
        compiled_s: float = 0.0,
    ) -> Evidence:
        evidence = evidence or Evidence()
        search = Search(
            candidates=candidates,
            evidence=evidence,
            now=lambda: self.clock,
            ends_at=budget_s,
            random=random.Random(1),
            accept_unverified=accept_unverified,
            reserved_s=lambda _: reserved_s,
            start_gain=start_gain,
            max_steps=max_steps,
        )
        search.program_compiled(compiled_s)
        plan = search.run() if timed is None else search.timed(timed, 12)
        reply: Reply | None = None
        try:
            while True:
                request = next(plan) if reply is None else plan.send(reply)
                reply = self._checked(request) if isinstance(request, Check) else self._ran(request)
        except StopIteration:
            return evidence

    def _ran(self, block: Block) -> BlockResult:
        self.blocks.append(block)
        names = _names(block.variant)
        if any(name in self._failing for name in names):
            return BlockResult(failure="RuntimeError: planted")
        quicker = math.prod(self._ratios.get(name, 1.0) for name in names)
        fixed_s = sum(s for name, s in self._fixed_s.items() if name not in names)
        noise = math.exp(self._random.gauss(0, self._block_sd))
        usual = (self._step_s / quicker + fixed_s) * noise * self._pace(self.clock)
        times = [usual] * (block.untimed + block.timed)
        for name in names:
            times[0] += self._first_use_s.pop(name, 0.0)
        self.clock += sum(times)
        kept_ns = [s * 1e9 for s in times[block.untimed :]]
        is_idle = len(names) == 1 and (names[0] in self._idle or names[0] in self._late)
        self._late -= set(names)
        return BlockResult(times_ns=kept_ns, nothing_changed=is_idle)

    def _checked(self, check: Check) -> Numerics:
        names = _names(check.variant)
        if any(name in self._wrong for name in names):
            return Numerics(ok=False, why="output off by 12% (0.1% allowed)")
        if any(name in self._unverified for name in names):
            return Numerics(ok=False, verified=False, why="nothing could be compared")
        return FINE


def _names(variant: Variant) -> list[str]:
    return [key.partition("/")[2] for key in variant]
