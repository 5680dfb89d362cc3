"""Wraps parts of torch to see steps from outside, without changing what a script computes.

Six kinds of calls are watched: calling a module, calling what torch.compile returned, replaying a
CUDA graph, backward, an optimizer's step, and a loader's next batch. They are wrapped before the
script starts. Once a step was seen, only the classes of outermost modules stay wrapped: the
hundreds of calls inside them are not intercepted. Each wrapper first checks whether Dynamo is
tracing, which Dynamo treats as a constant: no guard depends on boundby's code, and nothing is
compiled again. No dispatch mode is ever entered: under one, a compiled model falls back to eager
permanently.

This module is imported, never `__main__`: a script replaces that.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.guard import Guard
from boundby.capture.torch import dynamo
from boundby.capture.torch import graph_recorder as graph_notes
from boundby.capture.torch.hook_listener import HookListener
from boundby.capture.torch.optimizers import optimizer_in, optimizer_of
from boundby.capture.torch.provenance import enable_provenance
from boundby.capture.torch.step_thread import StepThread
from boundby.runtime.modules import buffers_of, parameters_of
from boundby.runtime.patching import PatchSet
from boundby.runtime.step_hooks import active_hooks


@skipped_by_warnings
class Hooks:
    """The wrapped calls. With `watcher` None all calls pass unseen, with `graphs` None those of
    graphs.

    The watcher is called through `guard`: the script's call is made, whatever fails here. Graph
    recordings have their own guard. Step hooks have none: they change the program, and one that
    fails invalidates the measurement that it is part of.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        self._do = (guard or Guard()).do
        self.watcher: HookListener | None = None
        self.graphs: graph_notes.GraphRecorder | None = None
        # Nested calls, and parts that backward runs again, are not new steps.
        self._depth = 0
        self._in_backward = False
        # An optimizer that steps others inside its own step is the one that counts.
        self._is_stepping = False
        self._thread = StepThread()
        self._swaps = PatchSet()
        # Functions that undo the watch on every module; empty once it is narrowed to the outermost
        # ones.
        self._wide = PatchSet()
        self._outermost: set[type] = set()
        self._parameterised: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        _all.add(self)

    def install(self, torch: Any) -> None:
        """Wrap torch's functions; `torch` is passed in, because the script imports it."""
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._optimizer_class: type = torch.optim.Optimizer
        self._module_class: type = torch.nn.Module
        self._swaps.swap(torch.autograd, "backward", self._around_backward)
        self._swaps.swap(torch.optim.Optimizer, "_patch_step_function", self._around_patching)
        self._swaps.swap(torch, "compile", self._around_compile)
        if hasattr(torch.cuda.CUDAGraph, "replay"):
            self._swaps.swap(torch.cuda.CUDAGraph, "replay", self._around_replay)
            self._swaps.swap(torch.cuda.CUDAGraph, "capture_begin", self._around_capture_begin)
            self._swaps.swap(torch.cuda.CUDAGraph, "capture_end", self._around_capture_end)
        self._swaps.swap(
            torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", self._around_next
        )
        for optimizer in _subclasses(torch.optim.Optimizer):
            if getattr(optimizer.step, "hooked", False):
                self._watch_optimizer_class(optimizer)
        self._wide.swap(torch.nn.Module, "__call__", self._around_module)
        dynamo.trace_through(torch.nn.Module.__call__, self._wide)

    @property
    def is_installed(self) -> bool:
        return bool(self._swaps)

    def narrow(self) -> None:
        """Stop watching all modules but the outermost ones that were seen."""
        if not self._wide or not self._outermost:
            return
        self._wide.undo()
        for outermost in self._outermost:
            inherits = "__call__" not in vars(outermost)
            around = functools.partial(self._around_module, heir=outermost if inherits else None)
            self._swaps.swap(outermost, "__call__", around)

    def remove(self) -> None:
        """Restore torch; for use from Python, where the process continues after the script."""
        self.watcher = None
        self._wide.undo()
        self._swaps.undo()

    def _unseen(self) -> bool:
        """Whether a call passes unseen: inside another, or on another thread than that of the
        steps."""
        return bool(self._depth or self.watcher is None or self._thread.is_another)

    def _around_module(self, original: Any, *, heir: Any = None) -> Any:
        """`heir`: the class that only inherits this. It calls what it inherits at the time: a
        script may change the call of all modules later, and change it back."""
        hooks, is_compiling = self, self._is_compiling

        # torch's profiler recognises a module's call by this code object and reads its local
        # `self`: with any other name it crashes.
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if is_compiling():
                return original(self, *args, **kwargs)
            call = original if heir is None else super(heir, type(self)).__call__  # type: ignore[misc]
            # Nested calls return here first: these lines are all that they cost in clean steps.
            if hooks._depth or hooks.watcher is None:
                return call(self, *args, **kwargs)
            if hooks._thread.is_another:
                return hooks._call_elsewhere(call, self, args, kwargs)
            return hooks._watch_call(call, self, (self, *args), kwargs)

        return functools.wraps(original)(__call__)

    def _around_replay(self, original: Any) -> Any:
        hooks = self

        def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
            # Also inside a call that is seen already, where most graphs are replayed.
            if hooks.graphs is not None and hooks.graphs.replays is not None:
                hooks.graphs.replayed(graph)
            return original(graph, *args, **kwargs)

        @functools.wraps(original)
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks._unseen():
                return run(graph, *args, **kwargs)
            return hooks._watch_call(run, graph, (graph, *args), kwargs)

        return replay

    def _around_capture_begin(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            if hooks.graphs is not None and hooks.watcher is not None:
                hooks.graphs.capture_began(graph)
            return result

        return capture_begin

    def _around_capture_end(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks.graphs is not None:
                hooks.graphs.capture_ends(graph)
            return original(graph, *args, **kwargs)

        return capture_end

    def _watch_call(
        self, run: Any, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        watcher = self.watcher
        if isinstance(called, self._module_class):
            if not self._has_parameters(called):
                # A transform, a loss or an activation by itself does not make a step.
                return run(*args, **kwargs)
            if self._wide:
                self._outermost.add(type(called))
            self._thread.called()
        if watcher is not None:
            self._do(watcher.call_begins, called, args, kwargs)
        self._depth += 1
        try:
            for hook in active_hooks:
                hook.call_begins(called, args, kwargs)
            try:
                result = run(*args, **kwargs)
            except Exception as error:
                if not any(one.call_failed(called, error) for one in tuple(active_hooks)):
                    raise
                result = run(*args, **kwargs)
            for hook in active_hooks:
                hook.call_ends(called, result)
        finally:
            self._depth -= 1
        return result

    def _call_elsewhere(
        self, call: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call on another thread than that of the steps, which may take them with it."""
        thread = self._thread
        is_model = thread.may_move and self._do(self._has_parameters, module, otherwise=False)
        if not is_model:
            return call(module, *args, **kwargs)
        if thread.calls_elsewhere():
            return self._watch_call(call, module, (module, *args), kwargs)
        with thread.inside():
            return call(module, *args, **kwargs)

    def _has_parameters(self, module: Any) -> bool:
        """Whether it has parameters or buffers, as a model does."""
        known = self._parameterised.get(module)
        if known is None:
            held = itertools.chain(parameters_of(module), buffers_of(module))
            known = next(held, None) is not None
            self._parameterised[module] = known
        return known

    def _around_backward(self, original: Any) -> Any:
        hooks, is_compiling = self, self._is_compiling

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or hooks._unseen():
                return original(*args, **kwargs)
            return hooks._watch_backward(original, args, kwargs)

        return backward

    def _watch_backward(self, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        watcher = self.watcher
        self._thread.trains(updates=False)
        if watcher is not None:
            self._do(watcher.backward_begins)
        for hook in active_hooks:
            hook.backward_begins(args[0] if args else kwargs.get("tensors"))
        self._depth += 1
        self._in_backward = True
        try:
            result = run(*args, **kwargs)
        finally:
            self._depth -= 1
            self._in_backward = False
        if watcher is not None and watcher is self.watcher:
            self._do(watcher.backward_ends)
        return result

    def _around_patching(self, original: Any) -> Any:
        """Wrap the function with which torch itself wraps an optimizer's step: when one is made,
        copied or loaded."""
        hooks = self

        @functools.wraps(original)
        def _patch_step_function(optimizer: Any) -> None:
            original(optimizer)
            hooks._do(hooks._watch_optimizer_class, type(optimizer))
            if hooks.watcher is not None:
                hooks._do(hooks.watcher.optimizer_made, optimizer)
            for hook in active_hooks:
                hook.optimizer_made(optimizer)

        return _patch_step_function

    def _watch_optimizer_class(self, optimizer: Any) -> None:
        if not hasattr(optimizer.step, "_boundby_unwatched"):
            self._swaps.swap(optimizer, "step", self._around_step)

    def _around_step(self, original: Any) -> Any:
        hooks, is_compiling = self, self._is_compiling

        @functools.wraps(original)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or hooks._step_is_unseen():
                return original(self, *args, **kwargs)
            return hooks._watch_step(original, self, (self, *args), kwargs)

        step._boundby_unwatched = original  # type: ignore[attr-defined]
        return step

    def _step_is_unseen(self) -> bool:
        if self.watcher is None or self._is_stepping:
            return True
        if not self._thread.is_another or self._in_backward:
            return False
        # A script that trains in another thread: the steps are there.
        return bool(self._depth) or not self._thread.updates_elsewhere()

    def _watch_step(
        self, run: Any, optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        watcher = self.watcher
        if watcher is None:
            return run(*args, **kwargs)
        self._do(watcher.optimizer_begins, optimizer)
        for hook in active_hooks:
            hook.optimizer_begins(optimizer)
        self._is_stepping = True
        self._thread.trains(updates=True)
        try:
            result = run(*args, **kwargs)
        finally:
            self._is_stepping = False
        if watcher is self.watcher:
            self._do(watcher.optimizer_ends, optimizer)
        return result

    def _around_next(self, original: Any) -> Any:
        hooks, is_compiling = self, self._is_compiling

        @functools.wraps(original)
        def __next__(loader: Any) -> Any:  # noqa: N807
            if is_compiling() or hooks._unseen():
                return original(loader)
            began = time.perf_counter_ns()
            # Modules called meanwhile are the dataset's transforms, not the model.
            hooks._depth += 1
            try:
                batch = original(loader)
            finally:
                hooks._depth -= 1
            if hooks.watcher is not None:
                waited, workers = time.perf_counter_ns() - began, getattr(loader, "_num_workers", 0)
                hooks._do(hooks.watcher.batch_came, waited, workers, id(loader))
            return batch

        return __next__

    def _around_compile(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def compile(model: Any = None, **kwargs: Any) -> Any:  # noqa: A001
            if model is None:
                return lambda function: compile(function, **kwargs)
            hooks._do(dynamo.exclude_own_frames, (type(hooks), Guard))
            if kwargs.get("backend", "inductor") == "inductor":
                hooks._do(enable_provenance)
            plain = hooks._do(dynamo.unwatched, model, otherwise=model)
            compiled = original(plain, **kwargs)
            return hooks._do(hooks._around_compiled, plain, compiled, otherwise=compiled)

        return compile

    def _around_compiled(self, plain: Any, compiled: Any) -> Any:
        """The result of torch.compile, watched: an optimizer's step, or a function.

        A compiled module is a module: its `__call__` is watched already.
        """
        if not isinstance(compiled, types.FunctionType):
            return compiled
        hooks, is_compiling = self, self._is_compiling
        stepped = optimizer_of(plain, self._optimizer_class)
        contains = stepped or optimizer_in(plain, self._optimizer_class)

        @functools.wraps(compiled)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or hooks._unseen():
                return compiled(*args, **kwargs)
            optimizer = hooks._do(contains, *args) if contains is not None else None
            if optimizer is None:
                return hooks._watch_call(compiled, watched, args, kwargs)
            if stepped is not None:
                return hooks._watch_step(compiled, optimizer, args, kwargs)
            # Reports the call with its shapes; the optimizer's step ends when the call does.
            call = functools.partial(hooks._watch_call, compiled, watched, args, kwargs)
            return hooks._watch_step(call, optimizer, (), {})

        watched._boundby_unwatched = compiled  # type: ignore[attr-defined]
        return watched


def _subclasses(owner: Any) -> list[Any]:
    found = list(owner.__subclasses__())
    return found + [deeper for one in found for deeper in _subclasses(one)]


_all: weakref.WeakSet[Hooks] = weakref.WeakSet()


def _close_all() -> None:
    for hooks in _all:
        hooks.watcher = None


# Workers forked from a script run its code too, but take no steps.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)
