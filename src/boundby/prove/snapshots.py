"""Copies a module's inputs and outputs, and restores the program's state."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from boundby.runtime.modules import parameters_of, parts_of


class UnrecordableError(Exception):
    """A value cannot be copied; says which."""


def detached_copy(torch: Any, value: Any) -> Any:
    """A deep copy whose tensors share nothing with the program; tensors become leaves."""
    if isinstance(value, torch.Tensor):
        try:
            copy_ = value.detach().clone()
            return copy_.requires_grad_() if value.requires_grad else copy_
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise UnrecordableError(
                f"{described(torch, value)} cannot be copied: {error}"
            ) from None
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype)):
        return value
    if type(value) is dict:
        return {key: detached_copy(torch, item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(detached_copy(torch, item) for item in value)
    if isinstance(value, (torch.device, torch.nn.Module)):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:  # noqa: BLE001 - any object's own __deepcopy__ may be called
        raise UnrecordableError(f"a {type(value).__name__} cannot be copied: {error}") from None


def cast(torch: Any, value: Any, dtype: Any) -> Any:
    """Floating-point tensors of a copied value in another dtype."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value
        return value.detach().to(dtype).requires_grad_(value.requires_grad)
    if type(value) is dict:
        return {key: cast(torch, item, dtype) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(cast(torch, item, dtype) for item in value)
    return value


def named_tensors(torch: Any, value: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """All tensors inside a value, with their paths."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(torch, item, f"{name}.{key}")
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for index, item in enumerate(value):
            yield from named_tensors(torch, item, f"{name}[{index}]")
    elif hasattr(value, "__dataclass_fields__"):
        for field in value.__dataclass_fields__:
            yield from named_tensors(torch, getattr(value, field, None), f"{name}.{field}")


def is_plain(torch: Any, tensor: Any) -> bool:
    """Whether it is dense, real and floating point, so that it can be compared element by
    element."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and tensor.is_floating_point()
        and tensor.numel() > 0
    )


def described(torch: Any, tensor: Any) -> str:
    """The kind of tensor that cannot be compared, in words."""
    if tensor.layout is not torch.strided:
        return f"a sparse tensor ({tensor.layout})"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.is_complex():
        return "a complex tensor"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a {type(tensor).__name__}"
    return f"a tensor of {str(tensor.dtype).removeprefix('torch.')}"


@contextlib.contextmanager
def restored_state(torch: Any, modules: Sequence[Any], optimizers: Sequence[Any]) -> Iterator[None]:
    """Restore parameters, buffers, gradients, modes, optimizers and random state at the end."""
    restore: list[Callable[[], None]] = [random_state(torch)]
    try:
        for module in modules:
            restore.append(_module_state(torch, module))  # noqa: PERF401 - each may fail
        for optimizer in optimizers:
            restore.append(_optimizer_state(torch, optimizer))  # noqa: PERF401
        yield
    finally:
        while restore:
            restore.pop()()


def random_state(torch: Any) -> Callable[[], None]:
    """A function that restores the present state of all random generators."""
    cpu = torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numbers = numpy.random.get_state() if numpy is not None else None

    def restore() -> None:
        torch.set_rng_state(cpu)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numbers)

    return restore


def _module_state(torch: Any, module: Any) -> Callable[[], None]:
    modes = [(part, part.training) for part in parts_of(module)]
    buffers = [
        (owner, name, buffer, buffer.detach().clone())
        for owner in parts_of(module)
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]
    gradients = [(parameter, parameter.grad) for parameter in parameters_of(module)]

    def restore() -> None:
        for part, training in modes:
            part.training = training
        with torch.no_grad():
            for owner, name, buffer, value in buffers:
                owner._buffers[name] = buffer
                buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient

    for parameter, _ in gradients:
        parameter.grad = None  # so that nothing is added to the program's own gradient
    return restore


def _optimizer_state(torch: Any, optimizer: Any) -> Callable[[], None]:
    """Optimizers change parameters: keep copies here."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    weights = [p.detach().clone() for p in parameters]
    groups = [dict(group) for group in optimizer.param_groups]
    states = [
        (
            p,
            {
                name: (value, value.detach().clone() if isinstance(value, torch.Tensor) else value)
                for name, value in optimizer.state[p].items()
            }
            if p in optimizer.state
            else None,
        )
        for p in parameters
    ]

    def restore() -> None:
        with torch.no_grad():
            for parameter, weight in zip(parameters, weights, strict=True):
                parameter.copy_(weight)
            for parameter, state in states:
                if state is None:
                    optimizer.state.pop(parameter, None)
                    continue
                current = optimizer.state[parameter]
                current.clear()
                for name, (value, values) in state.items():
                    if isinstance(value, torch.Tensor):
                        value.copy_(values)
                    current[name] = value
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            params = group["params"]
            group.clear()
            group.update(values)
            group["params"] = params

    return restore
