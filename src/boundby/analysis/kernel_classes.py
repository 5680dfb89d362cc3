"""Device time by class of kernel: known from kernel names even if an operator's cost is unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from boundby.model import DeviceKind, Ints, Timeline
from boundby.model.assumptions.verdict import COSTED
from boundby.model.kernel_names import KernelClass, kernel_name
from boundby.model.rows import ClassName, KernelClassRow
from boundby.ops.registry import op_class
from boundby.step.op_record import OpRecord

# The operator's class, if the kernel's name gives none but its operator is known.
_OF_OPERATOR: dict[str, KernelClass] = {
    "contraction": "matrix product",
    "normalization": "normalization",
    "elementwise": "elementwise",
    "movement": "copy",
    "communication": "communication",
}
_COARSE: dict[KernelClass, ClassName] = {
    "matrix product": "contraction",
    "convolution": "contraction",
    "attention": "contraction",
    "normalization": "normalization",
    "reduction": "normalization",
    "elementwise": "elementwise",
    "optimizer": "elementwise",
    "generated": "elementwise",
    "copy": "movement",
    "embedding": "movement",
    "sort": "movement",
    "communication": "communication",
}
# Classes whose arithmetic makes up MFU.
_PRODUCTS = ("matrix product", "convolution", "attention")
_SHOWN = 4  # display limit
_WORTH_SHOWING = 0.01  # display limit: share of the classes' time


def class_of(record: OpRecord) -> ClassName:
    """The class of a record: its formula's, or that of its first kernel's name."""
    if record.op_class != "unknown" or record.kernel_class is None:
        return record.op_class
    return _COARSE[record.kernel_class]


def kernel_class_rows(
    timeline: Timeline, op_records: Sequence[OpRecord], member: Ints
) -> list[KernelClassRow]:
    """Device time by class of kernel, the longest first; empty for a CPU step."""
    device = timeline.device
    if not len(device):
        return []
    costed = np.array([record.cost is not None for record in op_records])
    by_operator = [_of_operator(record) for record in op_records]
    keys = np.stack([device.name.astype(np.int64), device.kind.astype(np.int64), member])
    unique, which = np.unique(keys, axis=1, return_inverse=True)
    ns = np.bincount(which.ravel(), weights=device.duration_ns)
    counts = np.bincount(which.ravel())
    total = max(float(ns.sum()), 1.0)
    rows: dict[str, KernelClassRow] = {}
    for (name, kind, record), spent, count in zip(
        unique.T.tolist(), ns.tolist(), counts.tolist(), strict=True
    ):
        kernel_class, dtype = _class_of_event(DeviceKind(kind), timeline.names[name])
        label = kernel_class or by_operator[record] or "unknown"
        row = rows.setdefault(label, KernelClassRow(kernel_class=label))
        dtypes = row.dtypes | {dtype: row.dtypes.get(dtype, 0.0) + spent} if dtype else row.dtypes
        rows[label] = KernelClassRow(
            kernel_class=label,
            ns=row.ns + spent,
            share=row.share + spent / total,
            costed_ns=row.costed_ns + spent * bool(costed[record]),
            kernels=row.kernels + count,
            dtypes=dtypes,
        )
    return sorted(rows.values(), key=lambda row: -row.ns)


def _of_operator(record: OpRecord) -> KernelClass | None:
    """The class that the operator's name tells, also where too little was recorded for its cost."""
    named = kernel_name(record.name).kernel_class
    return named or _OF_OPERATOR.get(op_class(record.name) or record.op_class)


def _class_of_event(kind: DeviceKind, name: str) -> tuple[KernelClass | None, str | None]:
    if kind is DeviceKind.COLLECTIVE:
        return "communication", None
    if kind is not DeviceKind.KERNEL:
        return "copy", None
    named = kernel_name(name)
    return named.kernel_class, named.dtype


def costed_share(rows: Iterable[KernelClassRow]) -> float | None:
    """The share of device time that belongs to operators of known cost."""
    listed = list(rows)
    total = sum(row.ns for row in listed)
    return sum(row.costed_ns for row in listed) / total if total else None


def classified_share(rows: Iterable[KernelClassRow]) -> float | None:
    """The share of device time whose class or cost is known."""
    listed = list(rows)
    total = sum(row.ns for row in listed)
    unknown = sum(row.ns - row.costed_ns for row in listed if row.kernel_class == "unknown")
    return 1 - unknown / total if total else None


def products_are_costed(rows: Iterable[KernelClassRow]) -> bool:
    """Whether enough of the products' time has a known cost for MFU to be a value."""
    products = [row for row in rows if row.kernel_class in _PRODUCTS]
    total = sum(row.ns for row in products)
    return sum(row.costed_ns for row in products) >= COSTED.value * total


def by_class(op_records: Sequence[OpRecord]) -> str:
    """The classes of kernels by device time: "matrix product 62%, copy 17%"."""
    ns: dict[str, float] = defaultdict(float)
    for record in op_records:
        ns[record.kernel_class or _of_operator(record) or "unknown"] += record.ns
    total = sum(ns.values())
    ranked = sorted(ns.items(), key=lambda item: -item[1])
    shown = [item for item in ranked[:_SHOWN] if item[1] >= _WORTH_SHOWING * total]
    return ", ".join(f"{name} {spent / total:.0%}" for name, spent in shown)
