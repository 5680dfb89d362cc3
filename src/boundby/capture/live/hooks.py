"""What is put around torch to see steps from outside, without changing what a script computes.

Four doors are watched: calling a module, calling what torch.compile returned, backward, and an
optimizer's step. They are wrapped once, before the script starts, and stay wrapped: hook state
that changes after compilation would make Dynamo compile again. While Dynamo traces, each wrapper
is as good as absent. No dispatch mode is ever entered: under one, a compiled model falls back to
eager for good.

This module is imported, never `__main__`: a script replaces that.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol


class Watcher(Protocol):
    """What is told of a step's parts as they happen, on the thread that runs them."""

    def call_begins(self, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost module or compiled function is about to run."""
        ...

    def call_ends(self) -> None: ...

    def backward_begins(self) -> None: ...

    def backward_ends(self) -> None: ...

    def optimizer_made(self, optimizer: object) -> None: ...

    def optimizer_begins(self, optimizer: object) -> None: ...

    def optimizer_ends(self, optimizer: object) -> None: ...


class Hooks:
    """The four wrapped doors. `watcher` None lets everything through unseen."""

    def __init__(self) -> None:
        self.watcher: Watcher | None = None
        self._depth = 0
        self._thread = threading.get_ident()
        os.register_at_fork(after_in_child=self._close)
        self._undo: list[Callable[[], None]] = []

    def install(self, torch: Any) -> None:
        """Wrap torch's doors; `torch` is passed in, since it is the script's to import."""
        self._wrap(torch.nn.Module, "__call__", self._around_module)
        self._wrap(torch.autograd, "backward", self._around_backward)
        self._wrap(torch.optim.Optimizer, "__init__", self._around_optimizer_init)
        self._wrap(torch, "compile", self._around_compile)
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._optimizer_class = torch.optim.Optimizer

    def _close(self) -> None:
        self.watcher = None

    def _unseen(self) -> bool:
        """Whether a call passes unseen: inside another, traced by Dynamo, or on a worker thread."""
        return bool(
            self._depth
            or self.watcher is None
            or self._is_compiling()
            or threading.get_ident() != self._thread
        )

    def remove(self) -> None:
        """Put torch back as it was; for use from Python, where nothing ends with the script."""
        self.watcher = None
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, around(original))
        self._undo.append(lambda: setattr(owner, name, original))

    def _around_module(self, original: Any) -> Any:
        hooks = self

        # torch's profiler knows a module's call by this code object and reads its local `self`:
        # under any other name it crashes.
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            # Nested calls take the first exit: this line is all that clean steps pay for.
            if hooks._depth or hooks._unseen():
                return original(self, *args, **kwargs)
            return hooks._watch_call(original, self, (self, *args), kwargs)

        return functools.wraps(original)(__call__)

    def _watch_call(
        self, run: Any, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        watcher = self.watcher
        assert watcher is not None
        self._depth += 1
        try:
            watcher.call_begins(called, args, kwargs)
            result = run(*args, **kwargs)
        finally:
            self._depth -= 1
        watcher.call_ends()
        return result

    def _around_backward(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            watcher = hooks.watcher
            if watcher is None or hooks._unseen():
                return original(*args, **kwargs)
            watcher.backward_begins()
            # Checkpointed parts call their modules again from in here: not new steps.
            hooks._depth += 1
            try:
                result = original(*args, **kwargs)
            finally:
                hooks._depth -= 1
            watcher.backward_ends()
            return result

        return backward

    def _around_optimizer_init(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(optimizer, *args, **kwargs)
            if "step" not in vars(optimizer):
                # On the instance: Dynamo unwraps what it finds on the class.
                optimizer.step = hooks._around_step(optimizer, optimizer.step)
            if hooks.watcher is not None:
                hooks.watcher.optimizer_made(optimizer)

        return __init__

    def _around_step(self, optimizer: Any, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            watcher = hooks.watcher
            if watcher is None or hooks._is_compiling():
                return original(*args, **kwargs)
            watcher.optimizer_begins(optimizer)
            result = original(*args, **kwargs)
            watcher.optimizer_ends(optimizer)
            return result

        # torch's own wrapper looks for this before it warns that step was overridden.
        step._boundby_unwatched = original  # type: ignore[attr-defined]
        return step

    def _around_compile(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def compile(model: Any = None, **kwargs: Any) -> Any:  # noqa: A001
            if model is None:
                return lambda function: compile(function, **kwargs)
            unwatched = getattr(model, "_boundby_unwatched", model)
            compiled = original(unwatched, **kwargs)
            return hooks._around_compiled(model, unwatched, compiled)

        return compile

    def _around_compiled(self, model: Any, unwatched: Any, compiled: Any) -> Any:
        """What torch.compile returned, watched: an optimizer's step, or a function.

        A compiled module is a module: its `__call__` is watched already.
        """
        owner = getattr(unwatched, "__self__", None)
        if model is not unwatched and isinstance(owner, self._optimizer_class):
            return self._around_step(owner, compiled)
        if isinstance(compiled, type) or not callable(compiled) or hasattr(compiled, "parameters"):
            return compiled
        hooks = self

        @functools.wraps(compiled)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if hooks._unseen():
                return compiled(*args, **kwargs)
            return hooks._watch_call(compiled, compiled, args, kwargs)

        return watched
