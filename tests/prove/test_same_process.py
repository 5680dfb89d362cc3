"""The live engine on functions in this process, with a clock that the functions advance."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.fixes import FIXES, Fix  # noqa: E402
from boundby.fixes.log import note  # noqa: E402
from boundby.fixes.switch import Program  # noqa: E402
from boundby.model.proof import Outcome, Proof  # noqa: E402
from boundby.prove.candidate import Candidate  # noqa: E402
from boundby.prove.evidence import Evidence  # noqa: E402
from boundby.prove.first_uses import FirstUses  # noqa: E402
from boundby.prove.proofs import proofs_of  # noqa: E402
from boundby.prove.same_process import measure_function  # noqa: E402


class Clock:
    """The device and the host's clock in one: time passes when the program says so."""

    def __init__(self) -> None:
        self.s = 0.0

    def mark(self) -> float:
        return self.s

    def between(self, marks: list[float]) -> list[float]:
        return [(after - before) * 1e9 for before, after in pairwise(marks)]

    def sync(self) -> None:
        return

    def __call__(self) -> float:
        return self.s


class Rig:
    """A tiny training step of 100 ms, and fixes that make it quicker or break it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.clock = Clock()
        self.cost_s = 0.1
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.steps = 0

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(4, 8)).square().sum().backward()
        self.optimizer.step()
        self.clock.s += self.cost_s
        self.steps += 1

    def quicker(self, factor: float, during: Callable[[], Any] = lambda: None) -> Any:
        @contextlib.contextmanager
        def apply() -> Iterator[None]:
            note("planted")
            self.cost_s /= factor
            undo = during()
            try:
                yield
            finally:
                self.cost_s *= factor
                if undo is not None:
                    undo()

        return apply

    def proofs(self, *fixes: Fix, budget_s: float = 300.0) -> dict[str, Proof]:
        candidates = [
            Candidate(key=f"{one.name}-fault/{one.name}", faults=(one.name,), change=one.change)
            for one in fixes
        ]
        self.evidence = Evidence()
        measure_function(
            self.step,
            candidates,
            self.evidence,
            fixes={one.key: fix for one, fix in zip(candidates, fixes, strict=True)},
            deadline=budget_s,
            device=self.clock,
            clock=self.clock,
        )
        return {proof.treatment: proof for proof in proofs_of(self.evidence, candidates)}


def fix(name: str, apply: Any) -> Fix:
    return Fix(name=name, change=f"# {name}", apply=apply)


def test_faster_and_correct_fixes_are_kept_and_combined() -> None:
    rig = Rig()
    found = rig.proofs(fix("a", rig.quicker(1.25)), fix("b", rig.quicker(1.6)))
    assert found["a"].outcome is found["b"].outcome is Outcome.KEPT
    together = found["b + a"].speedup
    assert together is not None
    assert together.median == pytest.approx(2.0)
    assert rig.cost_s == pytest.approx(0.1)


def test_ineffective_fix_is_no_gain_and_inapplicable_fix_is_skipped() -> None:
    rig = Rig()
    found = rig.proofs(fix("same", rig.quicker(1.0)), fix("idle", contextlib.nullcontext))
    assert found["same"].outcome is Outcome.NO_GAIN
    assert found["idle"].outcome is Outcome.SKIPPED
    assert "nothing for it to change" in found["idle"].why


def test_a_faster_fix_with_wrong_numbers_is_refused_with_the_tensor() -> None:
    rig = Rig()

    def scale() -> Callable[[], None]:
        hooks: Sequence[Any] = [
            p.register_hook(lambda grad: grad * 1.1) for p in rig.model.parameters()
        ]

        def undo() -> None:
            for one in hooks:
                one.remove()

        return undo

    proof = rig.proofs(fix("wrong", rig.quicker(2.0, scale)))["wrong"]
    assert proof.outcome is Outcome.WRONG_NUMBERS
    assert proof.numerics is not None
    assert proof.numerics.tensor is not None and "gradient" in proof.numerics.tensor
    assert proof.numerics.error is not None and proof.numerics.tolerance is not None
    assert proof.numerics.error > proof.numerics.tolerance


def test_failing_forward_is_repeated_without_the_fix() -> None:
    rig = Rig()

    def fail(*_: Any) -> None:
        raise MemoryError("planted: out of memory\nand more")

    def during() -> Any:
        return rig.model.register_forward_pre_hook(fail).remove

    found = rig.proofs(fix("broken", rig.quicker(1.0, during)), fix("good", rig.quicker(2.0)))
    assert found["broken"].outcome is Outcome.FAILED
    assert found["broken"].why == "MemoryError: planted: out of memory"
    assert found["good"].outcome is Outcome.KEPT


def test_real_fused_optimizer_is_measured_and_undone() -> None:
    rig = Rig()
    fused = next(one for one in FIXES if one.name == "fused")

    class Quicker:
        """The real switch, with time that is saved for certain."""

        def __init__(self, program: Program) -> None:
            made = fused.switch_for(program)
            assert made is not None
            self._switch, self.objects = made, made.objects

        def on(self) -> None:
            self._switch.on()
            rig.cost_s /= 2

        def off(self) -> None:
            self._switch.off()
            rig.cost_s *= 2

    weights = [p.detach().clone() for p in rig.model.parameters()]
    found = rig.proofs(Fix(name="fused", change="fused=True", switch=Quicker))
    assert found["fused"].outcome is Outcome.KEPT, found["fused"].why
    assert rig.optimizer.param_groups[0]["fused"] is None
    assert rig.evidence.objects["fused-fault/fused"][0].type_name == "AdamW"
    # The function's modules are as they were before.
    for before, now in zip(weights, rig.model.parameters(), strict=True):
        assert torch.equal(before, now)


def test_budget_ends_within_a_step() -> None:
    rig = Rig()
    rig.proofs(*(fix(name, rig.quicker(1.0)) for name in "abcdef"), budget_s=3.0)
    assert rig.clock.s <= 3.0 + 2 * 0.1


class VaryingLengths(Rig):
    """Batches of random length; a planted fix pays for the first use of each length."""

    def __init__(self, lengths: int, first_use_s: float) -> None:
        super().__init__()
        self._lengths, self._first_use_s = lengths, first_use_s
        self._random = random.Random(0)
        self._seen: set[int] = set()
        self._is_on = False
        self.s_per_row = 0.0

    def step(self) -> None:
        length = self._random.randrange(1, 1 + self._lengths)
        self.optimizer.zero_grad()
        self.model(torch.ones(length, 8)).square().sum().backward()
        self.optimizer.step()
        self.clock.s += self.cost_s * (1 + self.s_per_row * length)
        if self._is_on and length not in self._seen:
            self._seen.add(length)
            self.clock.s += self._first_use_s

    def switched(self) -> Callable[[], None]:
        self._is_on = True

        def undo() -> None:
            self._is_on = False

        return undo


def test_first_uses_of_shapes_are_not_timed() -> None:
    rig = VaryingLengths(lengths=20, first_use_s=0.1)
    proof = rig.proofs(fix("tuned", rig.quicker(1.5, rig.switched)))["tuned"]
    assert proof.outcome is Outcome.KEPT
    assert proof.speedup is not None
    assert proof.speedup.median == pytest.approx(1.5)


def test_first_uses_that_never_end_are_part_of_the_step() -> None:
    rig = VaryingLengths(lengths=100_000, first_use_s=0.1)
    proof = rig.proofs(fix("tuned", rig.quicker(1.5, rig.switched)), budget_s=60.0)["tuned"]
    assert proof.outcome is Outcome.NO_GAIN


def test_steps_in_which_a_fix_still_compiles_are_not_timed() -> None:
    uses = FirstUses()
    uses.prepared(("compile",))
    step = {"usual_s": 1.0, "left_s": 100.0}
    assert uses.step_ended(("compile",), 30.0, has_compiled=True, **step)
    assert not uses.step_ended(("compile",), 1.1, has_compiled=True, **step)
    # Half of the time that is left is enough to see that it does not end.
    assert not uses.step_ended(("compile",), 30.0, has_compiled=True, **step)
    assert not uses.step_ended(("compile",), 30.0, has_compiled=False, **step)


def test_steps_are_compared_at_one_size_of_input() -> None:
    rig = VaryingLengths(lengths=50, first_use_s=0.0)
    rig.s_per_row = 0.1
    proof = rig.proofs(fix("a", rig.quicker(1.1)))["a"]
    assert proof.outcome is Outcome.KEPT
    assert proof.speedup is not None
    # Without scaling, one variant's batches are by chance longer than the other's.
    assert proof.speedup.median == pytest.approx(1.1, rel=0.01)
    assert proof.speedup.high / proof.speedup.low < 1.04
