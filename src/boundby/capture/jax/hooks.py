"""Calls of a script's compiled functions, seen from outside.

`jax.jit` and its relatives are replaced by functions that return a thin wrapper of what jax
returns. The compiled function keeps its own fast path inside. Types and special methods of jax
stay as they are, but for programs compiled ahead of their calls (`lower().compile()`). Gradient
transformations are wrapped as well: they tell training from inference, and delimit the steps of a
script that compiles nothing. So are `jax.lax.scan` and other loops, which compile their body where
they are called outside of any compiled function.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, NamedTuple, Protocol

from boundby.capture.jax import compat
from boundby.capture.jax.places import NotedPlaces, users_place
from boundby.capture.kineto.names import Origin, origin_of
from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.guard import Guard
from boundby.runtime.patching import PatchSet
from boundby.runtime.step_hooks import active_hooks


class CallListener(Protocol):
    def calls(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        """A call from the script's own level begins; the returned function gets the result."""
        ...


class Function:
    """A compiled or gradient function of the script; `key` is equal for equal code."""

    __slots__ = (
        "arguments",
        "batch",
        "carries",
        "compiled",
        "has_gradient",
        "is_fed",
        "is_loop",
        "is_placed",
        "is_quiet",
        "key",
        "library",
        "made",
        "maker",
        "name",
        "place",
        "samples",
        "traced_gradient",
        "variant",
    )

    def __init__(self, key: Hashable, wrapped: Any, *, compiled: Any, has_gradient: bool) -> None:
        code = getattr(wrapped, "__code__", None)
        self.key = key
        self.name = str(getattr(wrapped, "__name__", type(wrapped).__name__))
        self.arguments = code.co_varnames[: code.co_argcount] if code is not None else ()
        self.place = (code.co_filename, code.co_firstlineno) if code is not None else None
        # A library's own function is placed where the script first calls it.
        self.is_placed = self.place is None or origin_of(self.place[0]) is Origin.USER
        self.compiled = compiled
        self.has_gradient = has_gradient  # computes gradients operator by operator
        self.traced_gradient = False  # gradients were taken while it was traced
        self.is_loop = False  # the body of a loop outside of compiled functions
        self.is_quiet = False  # its calls tell nothing new
        self.library: str | None = None  # whose wrapper of the script's function was compiled
        self.batch: tuple[int, ...] = ()  # the shape of its batch, if known
        self.carries = False  # takes its own results in the next call
        self.is_fed = False  # gets new arrays of numpy in each call
        self.samples: int | None = None  # called on one row after the other of so many
        self.made = 0  # how often a function of this code was wrapped
        self.maker: tuple[Any, Any, dict[str, Any]] | None = None  # jax.jit, function, options
        self.variant: Callable[..., Any] | None = None  # what runs in its place

    def is_static(self, position: int | str, name: str) -> bool:
        """Whether an argument's value is compiled into the program, as far as the options tell."""
        options = self.maker[2] if self.maker is not None else {}
        return position in _several(options.get("static_argnums")) or name in _several(
            options.get("static_argnames")
        )

    @property
    def is_scripts_own(self) -> bool:
        """Whether it is a compiled function whose code is the script's."""
        is_here = self.place is not None and origin_of(self.place[0]) is Origin.USER
        return self.compiled is not None and self.library is None and is_here

    @property
    def can_be_compiled_again(self) -> bool:
        return self.maker is not None and self.made == 1

    def compiled_with(self, **options: Any) -> Callable[..., Any]:
        """The same function, compiled with other options beside the script's own."""
        assert self.maker is not None
        jit, function, own = self.maker
        changed: Callable[..., Any] = jit(function, **{**own, **options})
        return changed

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the active variant of the function."""
        return (self.variant or self.compiled)(*args, **kwargs)


class Call(NamedTuple):
    """A call of the script's that is under way."""

    function: Function
    compiled: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@skipped_by_warnings
class JaxHooks:
    """One per run: wrapped functions stay wrapped, and cost one comparison without a watcher."""

    def __init__(self, guard: Guard | None = None) -> None:
        self.watcher: CallListener | None = None
        self._guard = guard or Guard()
        self._patches = PatchSet()
        # Of the script's main thread: others are not watched.
        self.call: Call | None = None
        self._functions: dict[Hashable, Function] = {}
        self.places = NotedPlaces(self._guard)
        # Of which function something was lowered, or compiled ahead of its calls.
        self._ahead: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()
        self._thread = threading.main_thread().ident

    @property
    def is_installed(self) -> bool:
        return len(self._patches) > 0

    @property
    def functions(self) -> list[Function]:
        return list(self._functions.values())

    def install(self, jax: Any) -> None:
        for path, name in compat.COMPILERS:
            owner = compat.namespace(jax, path)
            if owner is not None:
                self._patches.swap(owner, name, self._compiler)
        for path, name in compat.GRADIENTS:
            owner = compat.namespace(jax, path)
            if owner is not None:
                self._patches.swap(owner, name, self._gradient)
        self.places.install(jax, self._patches)
        for path, name, position, keyword in compat.LOOPS:
            owner = compat.namespace(jax, path)
            if owner is not None:
                self._patches.swap(owner, name, functools.partial(self._loop, position, keyword))

        for owner, name, around in compat.ahead(jax, self._compile_ahead, self._run_ahead):
            self._patches.swap(owner, name, around)

    def remove(self) -> None:
        self._patches.undo()

    def _compiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if compat.is_compiled_function(made):
                return self._guard.do(self._wrap, made, original, args, kwargs, otherwise=made)
            if callable(made):  # jax.jit(static_argnums=0) returns a decorator
                return lambda function: self._guard.do(
                    self._wrap,
                    decorated := made(function),
                    original,
                    (function,),
                    kwargs,
                    otherwise=decorated,
                )
            return made

        return make

    def _gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        is_called_at_once = original.__name__ == "vjp"

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            if is_called_at_once:
                self._note_gradient()
                return original(*args, **kwargs)
            made = original(*args, **kwargs)
            if not isinstance(made, FunctionType):
                return made
            function = self._function(args[0] if args else made, None, has_gradient=True)

            @functools.wraps(made)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._note_gradient()
                if self.watcher is None or self._is_inside():
                    return made(*args, **kwargs)
                return self._observed(function, made, args, kwargs)

            return call

        return make

    def _loop(
        self, position: int, keyword: str, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Wrap a loop primitive: outside of compiled functions its call is observed like that of a
        function with the code of the loop's body."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.watcher is None or self._is_inside():
                return original(*args, **kwargs)
            body = args[position] if position < len(args) else kwargs.get(keyword)
            function = self._function(body, None, has_gradient=False)
            function.is_loop = True
            return self._observed(function, original, args, kwargs)

        return call

    def _wrap(
        self, compiled: Any, maker: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        function = self._function(inspect.unwrap(compiled), compiled, has_gradient=False)
        function.maker = (maker, args[0], options) if len(args) == 1 else None
        function.library = _library_of(args[0]) if args else None

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.watcher is None or (function.is_quiet and not active_hooks):
                return compiled(*args, **kwargs)
            return self._observed(function, compiled, args, kwargs)

        vars(call).update(compat.public_attributes(compiled))
        vars(call)["lower"] = self._lower(function, compiled)
        return call

    def _lower(self, function: Function, compiled: Any) -> Callable[..., Any]:
        """`lower` of a compiled function, which traces it."""

        @functools.wraps(compiled.lower)
        def lower(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside():
                return compiled.lower(*args, **kwargs)
            self.call = Call(function, compiled, args, kwargs)
            try:
                lowered = compiled.lower(*args, **kwargs)
            finally:
                self.call = None
            self._guard.do(self._ahead.__setitem__, lowered, function)
            return lowered

        return lower

    def _compile_ahead(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_it(lowered: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(lowered, *args, **kwargs)
            function = self._ahead.get(lowered)
            if function is not None:
                self._ahead[made] = function
            return made

        return compile_it

    def _run_ahead(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(program: Any, *args: Any, **kwargs: Any) -> Any:
            function = self._ahead.get(program) if self.watcher is not None else None
            if function is None or (function.is_quiet and not active_hooks):
                return original(program, *args, **kwargs)
            function.maker = None  # a program takes no static arguments, unlike the function
            return self._observed(function, functools.partial(original, program), args, kwargs)

        return call

    def _function(self, wrapped: Any, compiled: Any, *, has_gradient: bool) -> Function:
        inner = wrapped
        while isinstance(inner, functools.partial):
            inner = inner.func
        inner = getattr(inner, "__func__", inner)
        # A library's wrapper has the same code for all functions, and their names.
        name = getattr(inner, "__name__", None)
        key = (getattr(inner, "__code__", None) or id(inner), name, has_gradient)
        function = self._functions.get(key)
        if function is None:
            function = Function(key, inner, compiled=compiled, has_gradient=has_gradient)
            self._functions[key] = function
        function.made += 1
        function.compiled = compiled
        return function

    def _is_inside(self) -> bool:
        """Whether this call is part of another one, or of its tracing."""
        is_elsewhere = self.call is not None or threading.get_ident() != self._thread
        return is_elsewhere or compat.is_tracing()

    def _note_gradient(self) -> None:
        if self.call is not None and threading.get_ident() == self._thread:
            self.call.function.traced_gradient = True

    def _observed(
        self,
        function: Function,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self.call is not None or threading.get_ident() != self._thread:
            return original(*args, **kwargs)
        if not function.is_placed:
            self._guard.do(_place, function)
        watcher = self.watcher
        on_result = self._guard.do(watcher.calls, function, args, kwargs) if watcher else None
        self.call = Call(function, original, args, kwargs)
        try:
            result = self._run(function, original, args, kwargs)
        finally:
            self.call = None
        if on_result is not None:
            self._guard.do(on_result, result)
        return result

    def _run(
        self,
        function: Function,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make the call. If a variant fails, call the script's own function."""
        if function.variant is None:
            return original(*args, **kwargs)
        try:
            return function.variant(*args, **kwargs)
        except Exception as error:
            for hook in active_hooks:
                if hook.call_failed(function, error):
                    return original(*args, **kwargs)
            raise


def _place(function: Function) -> None:
    """Note the script's line that calls it."""
    function.is_placed = True
    function.place = users_place() or function.place


def _library_of(given: Any) -> str | None:
    """The installed package whose code was handed to `jax.jit`; None for the script's own."""
    while isinstance(given, functools.partial):
        given = given.func
    given = getattr(given, "__func__", given)
    owner = given if isinstance(given, FunctionType) else type(given)
    module = sys.modules.get(owner.__globals__["__name__"] if owner is given else owner.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or origin_of(file) is not Origin.LIBRARY:
        return None
    return module.__name__.partition(".")[0]


def _several(given: Any) -> tuple[Any, ...]:
    """One or several of something, as options of jax have them."""
    if given is None:
        return ()
    return (given,) if isinstance(given, int | str) else tuple(given)
