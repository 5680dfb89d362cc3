"""Switches off settings of torch that are for debugging or for reproducible results.

When the fix is undone, each has the value that the script last set, also while the fix was on.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note


@contextlib.contextmanager
def no_anomaly_detection() -> Iterator[None]:
    """The mode stays off, also where the step switches it on by a context manager."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        wanted = [(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())]
        really_set = torch.set_anomaly_enabled
        swaps.later(lambda: really_set(*wanted[-1]))
        really_set(False)
        if wanted[-1][0]:
            note("anomaly detection off")

        def around(original: Any) -> Any:
            @functools.wraps(original)
            def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
                wanted[:] = [(mode, check_nan)]
                if mode:
                    note("anomaly detection off")

            return set_anomaly_enabled

        swaps.swap(torch, "set_anomaly_enabled", around)

    with when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def not_deterministic() -> Iterator[None]:
    def arrived(torch: Any, swaps: PatchSet) -> None:
        before = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        if not before:
            return
        torch.use_deterministic_algorithms(False)
        swaps.later(lambda: torch.use_deterministic_algorithms(before, warn_only=warns))
        note("deterministic algorithms off")

    with when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def unfilled_memory() -> Iterator[None]:
    def arrived(torch: Any, swaps: PatchSet) -> None:
        # The namespace is a module of its own class, whose attributes are properties.
        settings = torch.utils.deterministic
        before = settings.fill_uninitialized_memory
        if not (before and torch.are_deterministic_algorithms_enabled()):
            return
        settings.fill_uninitialized_memory = False
        swaps.later(lambda: setattr(settings, "fill_uninitialized_memory", before))
        note("new memory not filled")

    with when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def benchmarked_convolutions() -> Iterator[None]:
    def arrived(torch: Any, swaps: PatchSet) -> None:
        cudnn = torch.backends.cudnn
        before = cudnn.benchmark
        if before:
            return
        cudnn.benchmark = True
        swaps.later(lambda: setattr(cudnn, "benchmark", before))
        note("cudnn.benchmark")

    with when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def unchecked_distributions() -> Iterator[None]:
    def arrived(torch: Any, swaps: PatchSet) -> None:
        distribution = torch.distributions.Distribution
        # There is no public way to read the default that `set_default_validate_args` sets.
        before = distribution._validate_args
        distribution.set_default_validate_args(False)
        swaps.later(lambda: distribution.set_default_validate_args(before))
        if not before:
            return

        def around(original: Any) -> Any:
            @functools.wraps(original)
            def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
                note("arguments of distributions not checked")
                original(self, *args, **kwargs)

            return initialise

        # A program that creates no distribution is not changed.
        swaps.swap(distribution, "__init__", around)

    with when_torch_arrives(arrived):
        yield


NO_ANOMALY_DETECTION = Fix(
    name="no-anomaly-detection",
    change="torch.autograd.set_detect_anomaly(False)",
    apply=no_anomaly_detection,
)
UNFILLED_MEMORY = Fix(
    name="unfilled-memory",
    change="torch.utils.deterministic.fill_uninitialized_memory = False",
    apply=unfilled_memory,
)
NOT_DETERMINISTIC = Fix(
    name="not-deterministic",
    change="torch.use_deterministic_algorithms(False)",
    apply=not_deterministic,
)
CUDNN_BENCHMARK = Fix(
    name="cudnn-benchmark",
    change="torch.backends.cudnn.benchmark = True",
    apply=benchmarked_convolutions,
    devices=("cuda",),
    preparation_s=5.0,
)
UNCHECKED_DISTRIBUTIONS = Fix(
    name="unchecked-distributions",
    change="torch.distributions.Distribution.set_default_validate_args(False)",
    apply=unchecked_distributions,
)
