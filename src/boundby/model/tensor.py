"""A tensor as a profiler records it."""

from __future__ import annotations

from collections.abc import Mapping

from boundby.model.record import Record


class Tensor(Record, frozen=True, kw_only=True):
    """A tensor argument of an operator, as a profiler records it.

    `storage` is the address of its storage, not of the tensor within it; `storage_bytes` is the
    size of the storage. Tensors of one call with the same `identity` are the same tensor.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    storage: int | None = None
    storage_bytes: int | None = None
    identity: int | None = None
    sparse: bool = False  # then its shape does not tell its number of values

    @property
    def elements(self) -> int:
        """Return the number of elements, including repeated (stride-0) dimensions."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def distinct_elements(self) -> int:
        """Return the number of distinct elements in memory: a stride-0 dimension counts once.

        Overlapping windows have at most the elements between the first and the last.
        """
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.elements
        total, reach = 1, 1
        for extent, stride in zip(self.shape, self.strides, strict=True):
            total *= extent if stride or not extent else 1
            reach += (extent - 1) * stride
        return min(total, reach) if total else 0

    @property
    def bytes(self) -> int:
        """Return the bytes of distinct memory."""
        return self.distinct_elements * DTYPE_BYTES.get(self.dtype, 0)


DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
