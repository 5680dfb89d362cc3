"""A mesh: the number of ways of each axis, and the position of its groups on the fabric."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from boundby.model import Record
from boundby.model.errors import BoundbyError
from boundby.plan.chips import Target

Axis = Literal["tensor", "context", "expert", "fsdp", "data", "pipeline"]
# Innermost first: neighbours in the first axis share a node (Megatron's tp-cp-dp-pp order).
_ORDER: tuple[Axis, ...] = ("tensor", "context", "fsdp", "data", "pipeline")
_NAMES = {
    "tensor": "tensor",
    "tp": "tensor",
    "model": "tensor",
    "context": "context",
    "cp": "context",
    "fsdp": "fsdp",
    "zero": "zero",
    "data": "data",
    "dp": "data",
    "pipeline": "pipeline",
    "pp": "pipeline",
    "interleave": "interleave",
    "vpp": "interleave",
    "expert": "expert",
    "ep": "expert",
}


class Mesh(Record, frozen=True, kw_only=True):
    """Ways per axis. `fsdp` chips shard states (`zero` 1: optimizer, 2: and gradients, 3: and
    weights); `data` replicates. Experts are spread over chips of the other axes. `sequence`
    shards activations outside products over the tensor axis."""

    data: int = 1
    fsdp: int = 1
    zero: int = 3
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    interleave: int = 1
    expert: int = 1
    sequence: bool = True

    @property
    def chips(self) -> int:
        return self.data * self.fsdp * self.tensor * self.context * self.pipeline

    @property
    def replicas(self) -> int:
        """Groups of chips that see different sequences."""
        return self.data * self.fsdp

    @property
    def holders(self) -> Mesh:
        """The mesh as weights and gradients see it: chips of the context axis hold the same ones,
        and shard or sum them as replicas do."""
        return msgspec.structs.replace(self, context=1, fsdp=self.fsdp * self.context)

    @property
    def gathers(self) -> bool:
        """Whether every micro-batch gathers the weights again (ZeRO-3)."""
        return self.zero == 3 and self.holders.fsdp > 1

    def size(self, axis: Axis) -> int:
        return int(getattr(self, axis))

    def shown(self) -> dict[str, int]:
        """The axes that split anything, for reports."""
        axes: dict[str, int] = {}
        for axis in (*_ORDER, "expert"):
            if getattr(self, axis) > 1:
                axes[axis] = getattr(self, axis)
        if self.holders.fsdp > 1:
            axes["zero"] = self.zero
        if self.interleave > 1:
            axes["interleave"] = self.interleave
        return axes

    def stride(self, axis: Axis) -> int:
        """Distance between neighbours of an axis in the order of the chips."""
        if axis == "expert":
            return 1  # experts are spread over the tensor axis too
        stride = 1
        for inner in _ORDER[: _ORDER.index(axis)]:
            stride *= self.size(inner)
        return stride


class Group(Record, frozen=True, kw_only=True):
    """The chips of one group of an axis: the number in one domain, and the number of domains.

    On a torus `rings` are the torus axes the group covers, `wraps` whether they close.
    """

    size: int
    local: int
    domains: int
    rings: int = 1
    wraps: bool = True


def group(mesh: Mesh, axis: Axis, target: Target) -> Group:
    """The position of the chips of one group of this axis."""
    size, stride = mesh.size(axis), mesh.stride(axis)
    fabric = target.fabric
    if fabric.kind != "torus":
        local = max(1, min(size, fabric.domain // stride))
        while size % local:
            local -= 1
        return Group(size=size, local=local, domains=size // local)
    slices = max(1, -(-mesh.chips // fabric.domain))
    local = max(1, size // slices) if axis in ("data", "fsdp") and slices > 1 else size
    spread = [one for one in _ORDER if mesh.size(one) > 1]
    rings = max(1, len(fabric.pod) - len(spread) + 1) if size == _largest(mesh) > 1 else 1
    wraps = local % fabric.wraps_at**rings == 0
    return Group(size=size, local=local, domains=size // local, rings=rings, wraps=wraps)


def _largest(mesh: Mesh) -> int:
    return max(mesh.size(axis) for axis in _ORDER)


def parse(text: str) -> Mesh:
    """A mesh from "data=8,fsdp=16,tensor=4"."""
    values: dict[str, int] = {}
    for part in filter(None, re.split(r"[,\s]+", text)):
        name, _, number = part.lower().partition("=")
        if name not in _NAMES or not number.isdigit() or int(number) < 1:
            raise BoundbyError(
                f"cannot read {part!r} in the mesh: write AXIS=N with an axis of "
                "data, fsdp, tensor, context, pipeline, interleave, expert, and zero=1..3"
            )
        if _NAMES[name] in values:
            raise BoundbyError(f"the mesh has {_NAMES[name]} twice: {text}")
        values[_NAMES[name]] = int(number)
    if not 1 <= values.get("zero", 3) <= 3:
        raise BoundbyError("zero is 1 (optimizer states), 2 (and gradients) or 3 (and weights)")
    return of_axes(values)


def of_axes(axes: dict[str, int]) -> Mesh:
    """The mesh of these ways per axis, as `Mesh.shown` gives them."""
    return msgspec.convert(axes, Mesh)
