"""Copies, casts, fills and layout changes: bytes without arithmetic."""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    argument,
    dense,
    integers,
    like,
    listed,
    moved,
    product,
    promote,
    scalar_type,
    tensor,
)


@formula("aten::copy_", "aten::_copy_from", op_class="movement")
def copy(call: OpCall) -> Cost:
    """(destination, source): only writes the former. Casts and layout changes call this."""
    destination, source = tensor(call, 0), tensor(call, 1)
    if call.name == "aten::_copy_from":
        destination, source = source, destination
    return moved(reads=(source,), writes=(destination,))


@formula(
    *aten("clone _to_copy _conj_copy _pin_memory"),
    op_class="movement",
)
def clone(call: OpCall) -> Cost:
    """A dense copy; the copy itself is a `copy_` if that was recorded."""
    x = tensor(call, 0)
    cast = scalar_type(argument(call, 1)) if call.name == "aten::_to_copy" else None
    return moved(reads=(x,), writes=(like(x, dtype=cast),))


@formula("aten::fill_", "aten::zero_", "aten::fill_diagonal_", op_class="movement")
def fill(call: OpCall) -> Cost:
    """Only writes."""
    destination = tensor(call, 0)
    return moved(writes=(destination,))


@formula(
    *aten("cat _cat concat concatenate stack _stack hstack vstack"),
    op_class="movement",
)
def cat(call: OpCall) -> Cost:
    """Concatenates all pieces."""
    pieces = listed(call, 0)
    total = sum(piece.elements for piece in pieces)
    return moved(reads=pieces, writes=(dense((total,), promote(*pieces)),))


@formula("aten::_chunk_cat", op_class="movement")
def chunk_cat(call: OpCall) -> Cost:
    """Chunks of each tensor side by side, the layout of sharded gradients."""
    pieces = listed(call, 0)
    total = sum(piece.elements for piece in pieces)
    return moved(reads=pieces, writes=(dense((total,), pieces[0].dtype),))


@formula("aten::split_with_sizes_copy", "aten::unbind_copy", op_class="movement")
def split_copy(call: OpCall) -> Cost:
    """Splits one tensor into copies of its pieces."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x),))


@formula("aten::constant_pad_nd", "aten::pad", op_class="movement")
def pad(call: OpCall) -> Cost:
    """The copy and its border; amounts are in pairs, last axis first."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(dense(_padded(x, integers(call, 1)), x.dtype),))


def _padded(x: Tensor, amounts: tuple[int, ...]) -> tuple[int, ...]:
    shape = list(x.shape)
    for pair in range(len(amounts) // 2):
        shape[-1 - pair] += amounts[2 * pair] + amounts[2 * pair + 1]
    return tuple(shape)


_MIRROR_PADS = aten(
    "reflection_pad1d reflection_pad2d reflection_pad3d",
    "replication_pad1d replication_pad2d replication_pad3d",
)


@formula(*_MIRROR_PADS, op_class="movement")
def mirror_pad(call: OpCall) -> Cost:
    """The border repeats inner elements."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(dense(_padded(x, integers(call, 1)), x.dtype),))


@formula(*(f"{name}_backward" for name in _MIRROR_PADS), op_class="movement")
def mirror_pad_backward(call: OpCall) -> Cost:
    """The gradient of the border is added to the elements it repeated."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return moved(reads=(grad,), writes=(like(x),))


@formula(
    *aten(
        "flip roll rot90 pixel_shuffle pixel_unshuffle channel_shuffle _lazy_clone "
        "to_mkldnn to_dense diag_embed"
    ),
    op_class="movement",
)
def rearrange(call: OpCall) -> Cost:
    """Writes as many elements as it reads."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x),))


@formula("aten::repeat", "aten::tile", op_class="movement")
def repeat(call: OpCall) -> Cost:
    """Repeats each axis the given number of times."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(dense((x.elements * product(integers(call, 1)),), x.dtype),))


@formula("aten::im2col", op_class="movement")
def im2col(call: OpCall) -> Cost:
    """Every patch laid out as a column."""
    x = tensor(call, 0)
    kernel, dilation, padding, stride = (integers(call, i, 2) for i in (1, 2, 3, 4))
    spread = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    axes = zip(x.shape[-2:], spread, padding, stride, strict=True)
    places = product((size + 2 * p - width) // step + 1 for size, width, p, step in axes)
    columns = x.elements // product(x.shape[-2:]) * product(kernel) * places
    return moved(reads=(x,), writes=(dense((columns,), x.dtype),))


@formula("aten::col2im", op_class="movement")
def col2im(call: OpCall) -> Cost:
    """Columns summed back into the image."""
    x, size, kernel = tensor(call, 0), integers(call, 1, 2), integers(call, 2, 2)
    batch = x.shape[0] if len(x.shape) == 3 else 1
    channels = x.shape[-2] // product(kernel)
    return moved(reads=(x,), writes=(dense((batch, channels, *size), x.dtype),))


@formula("aten::unfold_backward", op_class="movement")
def unfold_backward(call: OpCall) -> Cost:
    """Windows summed back into their source."""
    grad = tensor(call, 0)
    return moved(reads=(grad,), writes=(dense(integers(call, 1), grad.dtype),))


@formula(
    *aten("slice_backward select_backward diagonal_backward"),
    op_class="movement",
)
def slice_backward(call: OpCall) -> Cost:
    """Zeros of the full size with the gradient copied into the slice."""
    grad = tensor(call, 0)
    return moved(reads=(grad,), writes=(dense(integers(call, 1), grad.dtype),))


@formula(
    *aten("arange range randperm"),
    op_class="movement",
)
def counted(call: OpCall) -> Cost:
    """Consecutive numbers; the recorded `out` does not have its final size."""
    numbers = [a for a in call.args if isinstance(a, int | float) and not isinstance(a, bool)]
    out = next((a for a in call.args if isinstance(a, Tensor)), None)
    if call.name in ("aten::arange", "aten::range") and out is not None and len(numbers) > 1:
        step = numbers[2] if len(numbers) > 2 else 1
        return moved(writes=(dense((int((numbers[1] - numbers[0]) / step),), out.dtype),))
    count = integers(call, 0)[0] if numbers else 0
    return moved(writes=(dense((count,), out.dtype if out else "int64"),))


@formula(
    *aten("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full"),
    op_class="movement",
)
def filled(call: OpCall) -> Cost:
    """Allocates and fills; the fill itself is a `fill_` or `zero_` if that was recorded."""
    first = argument(call, 0)
    if isinstance(first, Tensor):
        new = call.name.startswith("aten::new_")
        return moved(writes=(dense(integers(call, 1), first.dtype) if new else like(first),))
    dtype = scalar_type(argument(call, 2 if call.name == "aten::full" else 1)) or "float32"
    return moved(writes=(dense(integers(call, 0), dtype),))


@formula("aten::_local_scalar_dense", "aten::item", op_class="movement")
def item(call: OpCall) -> Cost:
    """Copies one number to the host."""
    return moved(reads=(tensor(call, 0),))


@formula("aten::_efficientzerotensor", "aten::scalar_tensor", op_class="movement")
def scalar_tensor(_: OpCall) -> Cost:
    """At most one number."""
    return Cost()
