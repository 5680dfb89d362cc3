"""The arguments of an operator, from the profiler's own event tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boundby.model import Tensor

_DTYPES = {
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "float8_e4m3fnuz": "float8",
    "float8_e5m2fnuz": "float8",
}


def read_arguments(inputs: Sequence[Any], allocated: Mapping[int, int]) -> tuple[Any, ...]:
    """Tensors with their storage, its size if known, and which of them are one object.

    The tree has the address of a storage, but not the offset of a view.
    """
    objects: dict[int, int] = {}
    return tuple(_argument(value, allocated, objects) for value in inputs)


def _argument(value: Any, allocated: Mapping[int, int], objects: dict[int, int]) -> Any:
    if hasattr(value, "sizes"):
        # Numbered within the call: the same call in the next step has the same numbers.
        number = objects.setdefault(value.impl_ptr, len(objects)) if value.impl_ptr else None
        dtype = str(value.dtype).removeprefix("torch.")
        return Tensor(
            shape=tuple(value.sizes),
            dtype=_DTYPES.get(dtype, dtype),
            strides=tuple(value.strides),
            storage=value.storage_data_ptr,
            storage_bytes=allocated.get(value.allocation_id),
            identity=number,
            sparse="sparse" in str(getattr(value, "layout", "")),
        )
    if isinstance(value, list):
        return tuple(_argument(item, allocated, objects) for item in value)
    return value if isinstance(value, (bool, int, float, str)) else None
