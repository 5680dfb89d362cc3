"""A counterfactual edit of a step, as a value: which operators, host times and waits change.

An edit does not say how a device or a CPU executes the step: `DeviceStep` and `CpuStep` evaluate
it. Edits add: `Edit.remove(casts) + Edit.set_time(times)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Float32 products on matrix units with reduced precision, or cast to 16 bits before.
MatmulPrecision = Literal["loose", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """Host time before each action of a launch sequence and after the last one.

    A CPU step has no actions: all of its host time is in `after_ns`.
    """

    before_ns: Floats = field(default_factory=lambda: np.empty(0))
    after_ns: float = 0.0

    @property
    def ns(self) -> float:
        return float(self.before_ns.sum()) + self.after_ns

    def __mul__(self, factor: float) -> HostTime:
        return HostTime(before_ns=self.before_ns * factor, after_ns=self.after_ns * factor)

    def __add__(self, other: HostTime) -> HostTime:
        if not len(self.before_ns) or not len(other.before_ns):
            before = self.before_ns if len(self.before_ns) else other.before_ns
        else:
            before = self.before_ns + other.before_ns
        return HostTime(before_ns=before, after_ns=self.after_ns + other.after_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change to a step; everything that it does not mention is unchanged.

    `op_ns`: new times of operators, by index; one that takes no time is not executed.
    `launch_share`: the remaining share of the host time that issues an operator: its launches on a
    device, its dispatch on a CPU. `host_saved`: host time removed. `host_added`: host time added
    before the first of some operators is issued. `saved_ns`: time taken off the step as a whole.
    `dropped_waits`: host actions that no longer wait for the device. `gap_ns`: time between
    consecutive kernels of a busy stream.

    For edits that follow: `unfusible` operators have become library kernels, which cannot be fused;
    `product_precision` is the precision of float32 products; with `no_user_python`, the script
    spends no time of its own outside the model and the framework.
    """

    op_ns: Mapping[int, float] = field(default_factory=dict)
    launch_share: Mapping[int, float] = field(default_factory=dict)
    host_saved: HostTime = field(default_factory=HostTime)
    host_added: tuple[tuple[tuple[int, ...], float], ...] = ()
    saved_ns: float = 0.0
    dropped_waits: frozenset[int] = frozenset()
    gap_ns: float | None = None
    unfusible: frozenset[int] = frozenset()
    product_precision: MatmulPrecision | None = None
    no_user_python: bool = False

    @classmethod
    def set_time(cls, op_ns: Mapping[int, float], *, launch_share: float = 1.0) -> Edit:
        """Operators take these times; a share of the host time that issues them remains."""
        shares = dict.fromkeys(op_ns, launch_share) if launch_share != 1.0 else {}
        return cls(op_ns=op_ns, launch_share=shares)

    @classmethod
    def remove(cls, ops: Iterable[int]) -> Edit:
        """Operators are neither executed nor issued."""
        return cls.set_time(dict.fromkeys(ops, 0.0), launch_share=0.0)

    @classmethod
    def scale_launches(cls, ops: Iterable[int], share: float) -> Edit:
        """A share of the host time that issues these operators remains."""
        return cls(launch_share=dict.fromkeys(ops, share))

    @classmethod
    def save_host(cls, saved: HostTime) -> Edit:
        """The host spends less time; a device with enough work queued may hide that."""
        return cls(host_saved=saved)

    @classmethod
    def add_host(cls, ops: Iterable[int], ns: float) -> Edit:
        """The host spends more time before the first of these operators."""
        return cls(host_added=((tuple(ops), ns),))

    @classmethod
    def save_step(cls, ns: float) -> Edit:
        """The step takes less time, independently of its operators and its host."""
        return cls(saved_ns=ns)

    @classmethod
    def drop_waits(cls, actions: Iterable[int]) -> Edit:
        """The host no longer waits for the device after these actions."""
        return cls(dropped_waits=frozenset(int(action) for action in actions))

    @classmethod
    def capture_graph(cls, saved: HostTime, *, gap_ns: float) -> Edit:
        """Launches are replayed from a graph: less host time, and other gaps between kernels."""
        return cls(host_saved=saved, gap_ns=gap_ns)

    def __add__(self, other: Edit) -> Edit:
        """Both edits; where both set the same thing, the second decides."""
        return Edit(
            op_ns={**self.op_ns, **other.op_ns},
            launch_share={**self.launch_share, **other.launch_share},
            host_saved=self.host_saved + other.host_saved,
            host_added=self.host_added + other.host_added,
            saved_ns=self.saved_ns + other.saved_ns,
            dropped_waits=self.dropped_waits | other.dropped_waits,
            gap_ns=self.gap_ns if other.gap_ns is None else other.gap_ns,
            unfusible=self.unfusible | other.unfusible,
            product_precision=other.product_precision or self.product_precision,
            no_user_python=self.no_user_python or other.no_user_python,
        )
