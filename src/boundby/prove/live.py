"""Measures variants on the live program: switches at step boundaries, times blocks of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from boundby.capture.host.compiler import compiled_ns
from boundby.capture.process.instruments import Device
from boundby.fixes import Fix
from boundby.fixes.switch import Program
from boundby.model.proof import Numerics
from boundby.prove.call_recorder import CallRecorder
from boundby.prove.candidate import lowest_precision
from boundby.prove.checks import Checks
from boundby.prove.evidence import BASELINE, Evidence
from boundby.prove.first_uses import FirstUses
from boundby.prove.input_sizes import InputSizes
from boundby.prove.ranks import Ranks
from boundby.prove.rounds import Action, Block, BlockResult, Check, Reply, Steps
from boundby.prove.search import Search
from boundby.prove.site_recorder import SiteRecorder
from boundby.prove.snapshots import random_state
from boundby.prove.switchboard import Switchboard
from boundby.runtime.modules import parameters_of
from boundby.runtime.step_hooks import StepHook

# The fewest steps, the most steps and the longest time before the first round.
_WARM_STEPS, _MAX_WARM_STEPS, _MAX_WARM_S = 4, 12, 20.0
_STABLE = 0.15  # steps that differ by less are warmed up; assumed
_RECOMPILE_LIMIT = 64  # torch's limit is 8, which variants of one function would reach
# A block ends after this many times its steps, even if too few of them are counted.
_MAX_OTHER_STEPS = 20


@dataclass(slots=True)
class _OpenBlock:
    """The block in progress."""

    block: Block
    marks: list[Any]
    kinds: list[str] = field(default_factory=list)
    is_first_use: list[bool] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)
    began: float = 0.0
    compiled_ns: float = 0.0  # by the process, until the last step that ended
    failure: str | None = None
    compare_at: int = 0  # steps after which several ranks compare how far each is


class LiveEngine(StepHook):
    """Drives a `Search` from the step boundaries of the running program.

    `on_step` is called after each request with what is known; `on_done` once, at the end. With
    `ranks`, what ends a warm-up or a block is agreed on, so that all switch at the same step.
    """

    def __init__(
        self,
        torch: Any,
        *,
        fixes: Mapping[str, Fix],
        user_defined: frozenset[str],
        search: Search,
        plan: Steps,
        device: Device,
        sites: SiteRecorder,
        main_kind: Callable[[], str | None],
        unobserved: Callable[[Callable[[], Any]], Any],
        on_step: Callable[[], None],
        on_done: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        ranks: Ranks | None = None,
        max_warm_steps: int = _MAX_WARM_STEPS,
    ) -> None:
        self.search = search
        self._torch = torch
        self._evidence: Evidence = search.evidence
        self._user_defined = user_defined
        self._device = device
        self._sites = sites
        self._main_kind = main_kind
        self._unobserved = unobserved  # runs something that is not a step of the script
        self._on_step = on_step
        self._on_done = on_done
        self._clock = clock
        self._ranks = ranks
        self._max_warm_steps = max_warm_steps
        self._program = Program(torch=torch)
        self._board = Switchboard(self._program, fixes)
        self._recorder = CallRecorder(torch)
        self._first_uses = FirstUses()
        self._sizes = InputSizes()
        self._plan = plan
        self._open: _OpenBlock | None = None
        self._kind: str | None = None
        self._warm: list[float] = []
        self._compiled_before = compiled_ns()
        self._began: float | None = None
        self._last: float | None = None
        self._restore_random: Callable[[], None] | None = None
        self._limits: dict[str, Any] = {}
        self._is_over = False

    # What the program does.

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_over:
            return
        self._first_uses.call_begins(args, kwargs)
        if self._recorder.is_open:
            self._recorder.call_begins(called, args, kwargs)
            self._sites.module_called(called, is_recorded=self._torch.is_grad_enabled())
            self._add_model(called)
        elif self._open is not None and self._open.block.preparing and self._board.on:
            # Not in timed blocks: it would add to the variant's time alone.
            self._restore_random = random_state(self._torch)

    def call_ends(self, called: Any, result: Any) -> None:
        if not self._is_over:
            self._recorder.call_ends(called, result)

    def _add_model(self, called: Any) -> None:
        if not isinstance(called, self._torch.nn.Module):
            return
        is_known = any(model is called for model in self._program.models)
        if not is_known and next(parameters_of(called), None) is not None:
            self._program.models.append(called)

    def backward_begins(self, roots: Any) -> None:
        if self._recorder.is_open and not self._is_over:
            self._sites.backward()

    def optimizer_begins(self, optimizer: Any) -> None:
        if self._recorder.is_open and not self._is_over:
            self._sites.optimizer_stepped(optimizer)
            if not any(known is optimizer for known in self._program.optimizers):
                self._program.optimizers.append(optimizer)

    def call_failed(self, called: Any, error: Exception) -> bool:
        """A variant failed in forward: switch all fixes off and repeat the call."""
        open_ = self._open
        if open_ is None or not self._board.on or self._is_over:
            return False
        open_.failure = first_line(error)
        self._board.set(BASELINE)
        if self._restore_random is not None and open_.block.preparing:
            self._restore_random()
        if isinstance(error, self._torch.OutOfMemoryError):
            self._torch.cuda.empty_cache()
        return True

    def step_ended(self, kind: str) -> None:
        if self._is_over:
            return
        self._evidence.steps += 1
        if self._open is None:
            self._warm_up()
            return
        is_first = self._ranks is None or self._ranks.rank == 0
        if is_first and self._clock() > self.search.ends_at:
            # The block takes longer than expected: stop within one step of the budget.
            self.finish()
            return
        self._open.marks.append(self._device.mark())
        self._open.kinds.append(kind)
        self._open.elements.append(self._first_uses.elements)
        self._open.is_first_use.append(self._is_first_use(self._open))
        block = self._open.block
        wanted = block.untimed + block.timed
        if len(self._open.kinds) % (wanted + 1) == 0 and self._kind not in self._open.kinds:
            # The usual kind of step has changed: after many shapes, their steps get one kind.
            self._kind = self._main_kind()
        if self._is_over_block(self._open, wanted):
            self._resume(self._close())

    def _is_over_block(self, opened: _OpenBlock, wanted: int) -> bool:
        counted, has_failed = sum(self._counted(opened)), opened.failure is not None
        if self._ranks is not None:
            if len(opened.kinds) < max(wanted, opened.compare_at):
                return False
            states = self._ranks.gather((counted, has_failed), tuple[int, bool])
            counted = min(steps for steps, _ in states)
            has_failed = any(failed for _, failed in states)
            opened.compare_at = len(opened.kinds) + wanted - counted
        return has_failed or counted >= wanted or len(opened.kinds) >= _MAX_OTHER_STEPS * wanted

    def _is_first_use(self, opened: _OpenBlock) -> bool:
        variant = opened.block.variant
        if opened.block.preparing:
            self._first_uses.prepared(variant)
            return False
        now, compiled = self._clock(), compiled_ns()
        seconds, opened.began = now - opened.began, now
        compiled_before, opened.compiled_ns = opened.compiled_ns, compiled
        return self._first_uses.step_ended(
            variant,
            seconds,
            usual_s=self.search.rounds.usual_step_s(variant),
            left_s=self.search.deadline - now,
            # What the unchanged program compiles again and again is part of its steps.
            has_compiled=variant != BASELINE and compiled > compiled_before,
        )

    def _counted(self, opened: _OpenBlock) -> list[bool]:
        """For each step whether it belongs to the block: evaluations in between and first uses of
        shapes do not."""
        return [
            self._kind in (None, kind) and not is_first
            for kind, is_first in zip(opened.kinds, opened.is_first_use, strict=True)
        ]

    # From request to request.

    def _warm_up(self) -> None:
        now = self._clock()
        if self._began is None:
            self._began = self._last = now
        assert self._last is not None
        self._warm.append(now - self._last)
        self._last = now
        if len(self._warm) > 1:
            self._sizes.add(self._first_uses.elements, self._warm[-1] * 1e9)
        self._first_uses.prepared(BASELINE)
        recent = self._warm[-3:]
        is_stable = max(recent) <= (1 + _STABLE) * min(recent) and len(self._warm) > _WARM_STEPS
        is_enough = len(self._warm) >= self._max_warm_steps or now - self._began > _MAX_WARM_S
        if len(self._warm) < _WARM_STEPS or not self._all_ranks(is_stable or is_enough):
            return
        self._recorder.is_open = False
        self._kind = self._main_kind()
        self._sites.close()
        self.search.program_compiled((compiled_ns() - self._compiled_before) / 1e9)
        self._raise_compile_limits()
        self._next(lambda: next(self._plan))

    def _all_ranks(self, own: bool) -> bool:
        return own if self._ranks is None else all(self._ranks.gather(own, bool))

    def _resume(self, reply: Reply) -> None:
        self._next(lambda: self._plan.send(reply))

    def _next(self, advance: Callable[[], Action]) -> None:
        """Answer checks at once, open the next block, or finish."""
        try:
            action = advance()
            while True:
                if isinstance(action, Check):
                    self._report_activity(action)
                    action = self._plan.send(self._check(action))
                    continue
                refused = self._begin(action)
                if self._all_ranks(refused is None):
                    return
                self._open = None
                action = self._plan.send(refused or BlockResult(nothing_changed=True))
        except StopIteration:
            self.finish()

    def _begin(self, block: Block) -> BlockResult | None:
        """Open a block; return its result if it cannot run."""
        try:
            switches = [self._board.switch(key) for key in block.variant]
            self._report_activity(block)
            if None in switches:
                return BlockResult(nothing_changed=True)
            self._board.set(block.variant)
        except Exception as error:  # noqa: BLE001 - a fix may fail in any way
            self._board.set(BASELINE)
            return BlockResult(failure=first_line(error))
        self._device.sync()
        if self._device_is_cuda:
            self._torch.cuda.reset_peak_memory_stats()
        self._open = _OpenBlock(
            block, [self._device.mark()], began=self._clock(), compiled_ns=compiled_ns()
        )
        return None

    def _close(self) -> BlockResult:
        assert self._open is not None
        opened, self._open = self._open, None
        self._device.sync()
        if opened.failure is not None:
            return BlockResult(failure=opened.failure)
        variant = opened.block.variant
        is_idle = (
            len(variant) == 1
            and variant[0] not in self._user_defined
            and not self._board.has_changed(variant[0])
        )
        times = self._device.between(opened.marks)
        steps = zip(opened.elements, times, self._counted(opened), strict=True)
        timed = [(elements, ns) for elements, ns, counts in steps if counts]
        timed = timed[opened.block.untimed :]
        if variant == BASELINE:
            for elements, ns in timed:
                self._sizes.add(elements, ns)
        scaled = self._sizes.scale()
        peak = None
        if self._device_is_cuda:
            peak = float(self._torch.cuda.max_memory_allocated())
        return BlockResult(
            times_ns=[scaled(elements, ns) for elements, ns in timed],
            peak_bytes=peak,
            nothing_changed=is_idle,
        )

    @property
    def _device_is_cuda(self) -> bool:
        return bool(self._torch.cuda.is_initialized())

    def _check(self, action: Check) -> Numerics:
        keys = action.variant
        fixes = [candidate for candidate in self.search.candidates if candidate.key in keys]
        checks = Checks(
            self._torch,
            list(self._recorder.calls.values()),
            self._program.optimizers,
            self._recorder.skipped,
        )

        def set_variant(changed: bool) -> None:
            self._board.set(keys if changed else BASELINE)

        def run() -> Numerics:
            return checks.verdict(
                set_variant,
                lowest_precision(fixes),
                as_called=self.search.compiles
                or any(candidate.preparation_s for candidate in fixes),
            )

        try:
            verdict = self._unobserved(run)
        except Exception as error:  # noqa: BLE001 - neither the program's fault nor the fix's
            self._board.set(BASELINE)
            verdict = Numerics(
                ok=False, verified=False, why=f"comparing failed: {first_line(error)}"
            )
        assert isinstance(verdict, Numerics)
        return verdict

    def _report_activity(self, action: Action) -> None:
        evidence = self._evidence
        evidence.running = action.variant
        evidence.measure_until = self.search.deadline
        evidence.preparing = isinstance(action, Block) and action.preparing
        for key, words in self._board.changes_made.items():
            if key:
                evidence.changes_made[key] = sorted(words)
        for key in {*action.variant} - evidence.objects.keys():
            evidence.objects[key] = self._sites.of(self._board.objects(key))
        evidence.sites = self._sites.program_sites()
        name = " + ".join(key.partition("/")[2] for key in action.variant) or "the unchanged script"
        activity = "checking" if isinstance(action, Check) else "preparing" * action.preparing
        evidence.now = f"{activity} {name}".strip()
        self._on_step()

    def finish(self) -> None:
        """Restore the program and stop measuring."""
        if self._is_over:
            return
        self._is_over = True
        self._board.set(BASELINE)
        self._restore_compile_limits()
        self._evidence.running = BASELINE
        self._evidence.sites = self._sites.program_sites()
        self._on_done()

    def _raise_compile_limits(self) -> None:
        """Each variant compiles the same functions again."""
        has_compiler = any(one.slot == "compilation" for one in self.search.candidates)
        if not (has_compiler or self.search.compiles):
            return
        import torch._dynamo

        config = torch._dynamo.config
        for name in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit"):
            if hasattr(config, name):
                self._limits[name] = getattr(config, name)
                setattr(config, name, max(_RECOMPILE_LIMIT, self._limits[name]))

    def _restore_compile_limits(self) -> None:
        for name, value in self._limits.items():
            setattr(self._torch._dynamo.config, name, value)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".strip(": ")
