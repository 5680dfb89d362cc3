"""Fixes that are switched on and off at a step boundary of a running program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from boundby.runtime.modules import parameters_of


@dataclass(slots=True, kw_only=True)
class Program:
    """The live objects of a running program, as far as they were seen in its steps."""

    torch: Any
    jax: Any = None
    step_function: Any = None  # of JAX: the function whose call ends a step
    state: Sequence[int] = ()  # its arguments that are its results in the next step
    models: list[Any] = field(default_factory=list)  # outermost modules that have parameters
    optimizers: list[Any] = field(default_factory=list)

    def parameters(self) -> list[Any]:
        """The parameters of all models, each once."""
        every = [one for model in self.models for one in parameters_of(model)]
        return list({id(one): one for one in every}.values())


class Switch(Protocol):
    """One fix on one program. `on` and `off` are called between steps, alternately.

    After `off` the program is as it was before `on`, bit for bit, except for what the steps in
    between have computed. What is expensive to make (compiled code, captured graphs) is kept.
    """

    @property
    def objects(self) -> Sequence[Any]:
        """The objects that it changes; empty if it changes the process."""
        ...

    def on(self) -> None: ...

    def off(self) -> None: ...


class Entered:
    """A fix that is a context manager without its own state: entered and left."""

    def __init__(
        self,
        apply: Callable[[], contextlib.AbstractContextManager[None]],
        objects: Sequence[Any] = (),
    ) -> None:
        self.objects = objects
        self._apply = apply
        self._entered: contextlib.AbstractContextManager[None] | None = None

    def on(self) -> None:
        entered = self._apply()
        entered.__enter__()
        self._entered = entered

    def off(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)
