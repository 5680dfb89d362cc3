"""Replays the outermost modules as CUDA graphs, forward and backward."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.masks import CHANGE as NO_MASKS
from boundby.fixes.masks import skip_unneeded_masks
from boundby.fixes.switch import Program
from boundby.runtime.patching import PatchSet

# Arguments of these kinds are part of the recording; anything else could change unnoticed.
_CONSTANTS = (type(None), bool, int, float, str)
# Each shape of inputs has a graph, with memory of its own: later shapes run without one.
_MAX_GRAPHS = 8
_CHANGE = "model = torch.cuda.make_graphed_callables(model, (sample_input,))"
_MASKS = "masks that a capture would build"


class GraphedModules:
    """Records a module's call when the same kind of call occurs the second time, and replays it."""

    def __init__(self, torch: Any, modules: Sequence[Any]) -> None:
        self.objects = modules
        self._torch = torch
        self._recorded: dict[Any, Callable[..., Any]] = {}
        self._seen: set[Any] = set()
        self._gradients = _Gradients()
        self._addresses: tuple[int, ...] = ()
        self._swaps = PatchSet()

    def on(self) -> None:
        # A graph uses the addresses it was captured with: another layout has other addresses.
        tensors = [
            one for module in self.objects for one in (*module.parameters(), *module.buffers())
        ]
        addresses = tuple(one.data_ptr() for one in tensors)
        if addresses != self._addresses:
            self._recorded.clear()
            self._seen.clear()
            self._addresses = addresses
        for module in self.objects:
            plain, was_its_own = module.forward, "forward" in vars(module)
            module.forward = self._graphed(module, plain)
            self._swaps.later(functools.partial(_put_back, module, plain, was_its_own))

    def off(self) -> None:
        self._swaps.undo()
        # What a graph writes is overwritten by its next replay.
        for module in self.objects:
            self._gradients.make_own(module.parameters())

    def _graphed(self, module: Any, plain: Any) -> Any:
        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._call(module, plain, args, kwargs)

        return forward

    def _call(self, module: Any, plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch
        from torch.utils import _pytree

        leaves, spec = _pytree.tree_flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        rest = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        if (
            not tensors
            or not all(x.is_cuda for x in tensors)
            or not all(isinstance(x, _CONSTANTS) for x in rest)
            or torch.cuda.is_current_stream_capturing()
        ):
            return plain(*args, **kwargs)
        key = (
            id(module),
            module.training,
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cuda"),
            tuple((tuple(x.shape), x.dtype, x.requires_grad) for x in tensors),
            tuple(map(repr, rest)),
        )
        if key not in self._seen:
            self._seen.add(key)
            return plain(*args, **kwargs)
        if key not in self._recorded:
            if len(self._recorded) >= _MAX_GRAPHS:
                return plain(*args, **kwargs)
            masks = skip_unneeded_masks()
            changed = [f"graph of {type(module).__name__}", *([_MASKS] if masks else [])]
            try:
                self._recorded[key] = _record(module, plain, leaves, spec, tensors)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{type(module).__name__} cannot be captured: {_first_line(_root(error))}"
                ) from error
            finally:
                masks.undo()
            for what in changed:
                note(what)
        self._gradients.make_own(module.parameters())
        return self._recorded[key](tensors)


def _put_back(module: Any, plain: Any, was_its_own: bool) -> None:
    if was_its_own:
        module.forward = plain
    else:
        vars(module).pop("forward", None)


def _switch(program: Program) -> GraphedModules | None:
    models = [one for one in program.models if any(p.is_cuda for p in one.parameters())]
    return GraphedModules(program.torch, models) if models else None


class _Gradients:
    """Keeps gradients valid after a replay.

    If a parameter has no gradient, autograd takes over the tensor that backward returns, here a
    graph's own memory. If it is kept for the next backward, to be added to or zeroed in place, that
    graph's next replay overwrites it: the sum of two batches would be twice the second.
    """

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}

    def make_own(self, parameters: Iterable[Any]) -> None:
        """Copy them before a replay, also before its forward: both use the same memory."""
        for parameter in parameters:
            if parameter.grad is None:
                self._own.pop(id(parameter), None)
            # From then on gradients are added in place: a copy stays valid.
            elif self._own.get(id(parameter)) is not parameter.grad:
                parameter.grad = parameter.grad.clone()
                self._own[id(parameter)] = parameter.grad


def _root(error: BaseException) -> BaseException:
    """The first error of a failed capture: its end fails again, with "a previous error"."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _record(
    module: Any, plain: Any, leaves: list[Any], spec: Any, tensors: list[Any]
) -> Callable[[list[Any]], Any]:
    import torch
    from torch.utils import _pytree

    shape_of_result: list[Any] = []

    def positional(*given: Any) -> tuple[Any, ...]:
        """The module as a function from tensors to tensors."""
        following = iter(given)
        filled = [next(following) if isinstance(x, torch.Tensor) else x for x in leaves]
        args, kwargs = _pytree.tree_unflatten(filled, spec)
        out, out_spec = _pytree.tree_flatten(plain(*args, **kwargs))
        shape_of_result[:] = [
            out_spec,
            [None if isinstance(x, torch.Tensor) else (x,) for x in out],
        ]
        return tuple(x for x in out if isinstance(x, torch.Tensor))

    # Recording runs the module a few times: counters and running averages are restored afterwards.
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    static = [x.detach().clone().requires_grad_(x.requires_grad) for x in tensors]
    with _autocast_without_cache(torch), _without_collector():
        if torch.is_grad_enabled():
            run = _trained(torch, module, positional, static)
        else:
            run = _replayed(torch, positional, static)
    with torch.no_grad():
        for buffer, value in kept:
            buffer.copy_(value)

    def call(given: list[Any]) -> Any:
        results = iter(run(*given))
        out_spec, constants = shape_of_result
        out = [next(results) if constant is None else constant[0] for constant in constants]
        return _pytree.tree_unflatten(out, out_spec)

    return call


def _trained(
    torch: Any, module: Any, function: Callable[..., Any], static: list[Any]
) -> Callable[..., Any]:
    """Capture a call with gradients: a graph of the forward, and one of the backward.

    Recorded with aliases of the parameters, in the same memory: the parameters themselves may be
    leaves of an earlier step's graph, on a stream that cannot be captured.
    """
    twins = {}
    for parameter in module.parameters():
        twin = torch.nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
        twin.__dict__.update(parameter.__dict__)
        twins[parameter] = twin
    with _in_place_of(module, twins):
        run = torch.cuda.make_graphed_callables(
            function, (*static, *twins.values()), allow_unused_input=True
        )
    return lambda *given: run(*given, *twins)


@contextlib.contextmanager
def _in_place_of(module: Any, twins: dict[Any, Any]) -> Iterator[None]:
    places = [
        (owner, name, parameter)
        for owner in module.modules()
        for name, parameter in owner._parameters.items()
        if parameter is not None
    ]
    try:
        for owner, name, parameter in places:
            setattr(owner, name, twins[parameter])
        yield
    finally:
        for owner, name, parameter in places:
            setattr(owner, name, parameter)


def _replayed(torch: Any, function: Any, static: list[Any]) -> Callable[..., Any]:
    """Capture a call without gradients: one graph, its inputs copied in, its outputs copied out."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = function(*static)

    def run(*given: Any) -> tuple[Any, ...]:
        for slot, value in zip(static, given, strict=True):
            slot.copy_(value)
        graph.replay()
        # The next replay overwrites them.
        return tuple(x.clone() for x in outputs)

    return run


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """A graph that Python's garbage collector frees during a capture ends it with an error."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _autocast_without_cache(torch: Any) -> contextlib.AbstractContextManager[Any]:
    if not torch.is_autocast_enabled("cuda"):
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[Any] = torch.autocast(
        "cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False
    )
    return context


def _written(touched: Collection[str]) -> str:
    """First remove what keeps models of transformers from being captured."""
    return f"{NO_MASKS}  # with nothing padded\n{_CHANGE}" if _MASKS in touched else _CHANGE


CUDA_GRAPHS = Fix(
    name="cuda-graphs",
    change=_CHANGE,
    written=_written,
    switch=_switch,
    preparation_s=5.0,
    devices=("cuda",),
    slot="compilation",
)
