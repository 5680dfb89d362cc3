"""Short ways to write a recorded call."""

from __future__ import annotations

from boundby import ops as costs
from boundby.model import Argument, Cost, OpCall, Tensor


def t(
    *shape: int,
    dtype: str = "float32",
    strides: tuple[int, ...] | None = None,
    storage: int | None = None,
    storage_bytes: int | None = None,
    identity: int | None = None,
) -> Tensor:
    """A tensor of this shape."""
    return Tensor(
        shape=shape,
        dtype=dtype,
        strides=strides,
        storage=storage,
        storage_bytes=storage_bytes,
        identity=identity,
    )


def call(name: str, *args: Argument) -> OpCall:
    """A call of torch's own operator, or of any with a namespace."""
    return OpCall(
        name=name if ":" in name or name.startswith("triton") else f"aten::{name}", args=args
    )


def cost(name: str, *args: Argument) -> Cost:
    """The cost of a call that must have one."""
    found = costs.cost(call(name, *args))
    assert found is not None, f"{name} has no cost"
    return found


def unknown(name: str, *args: Argument) -> bool:
    """Whether a call has no cost."""
    return costs.cost(call(name, *args)) is None
