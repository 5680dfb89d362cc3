"""Measures variants on a live JAX program, at the boundaries that its recorder finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boundby.capture.jax.recorder import JaxRecorder
from boundby.fixes import Fix
from boundby.fixes.switch import Program
from boundby.model.proof import Numerics
from boundby.prove.candidate import lowest_precision
from boundby.prove.evidence import BASELINE
from boundby.prove.jax_checks import JaxChecks
from boundby.prove.live import LiveEngine, first_line
from boundby.prove.rounds import Check
from boundby.prove.switchboard import Switchboard


class JaxLiveEngine(LiveEngine):
    """`LiveEngine` for JAX programs: the same search, other switches and another comparison."""

    framework = "jax"

    def __init__(
        self, jax: Any, recorder: JaxRecorder, *, fixes: Mapping[str, Fix], **known: Any
    ) -> None:
        super().__init__(None, fixes=fixes, device=recorder.device, **known)
        self._jax = jax
        self._observed = recorder
        self._program = Program(torch=None, jax=jax)
        self._board = Switchboard(self._program, fixes)
        self._checks: JaxChecks | None = None

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        finder = self._observed.finder
        if self._is_over or called is not finder.anchor:
            return
        if self._program.step_function is None:
            self._program.step_function = called
            self._program.state = finder.state_positions
        if self._checks is None and finder.has_state:
            self._checks = JaxChecks(self._jax, args, kwargs)

    def backward_begins(self, roots: Any) -> None:
        return

    def optimizer_begins(self, optimizer: Any) -> None:
        return

    def call_failed(self, called: Any, error: Exception) -> bool:
        """A variant of the step failed: switch all fixes off and repeat the call."""
        if self._open is None or not self._board.on or self._is_over:
            return False
        self._open.failure = first_line(error)
        self._board.set(BASELINE)
        return True

    def _check(self, request: Check) -> Numerics:
        function = self._program.step_function
        if self._checks is None or function is None:
            return Numerics(ok=False, verified=False, why="no call of the step was recorded")
        fixes = [
            candidate for candidate in self.search.candidates if candidate.key in request.variant
        ]

        def set_variant(changed: bool) -> None:
            self._board.set(request.variant if changed else BASELINE)

        try:
            verdict = self._unobserved(
                lambda: self._checks.verdict(  # type: ignore[union-attr]
                    function.run,
                    set_variant,
                    lowest_precision(fixes),
                )
            )
        except Exception as error:  # noqa: BLE001 - neither the program's fault nor the fix's
            self._board.set(BASELINE)
            why = f"comparing failed: {first_line(error)}"
            return Numerics(ok=False, verified=False, why=why)
        assert isinstance(verdict, Numerics)
        return verdict

    @property
    def _device_is_cuda(self) -> bool:
        """False: peaks of memory are JAX's own, which cannot be reset."""
        return False

    def _raise_compile_limits(self) -> None:
        return

    def _restore_compile_limits(self) -> None:
        return
