"""Batches made ahead by workers, in pinned memory, and copied asynchronously."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.runtime.cores import cores_at_hand

_MOST_WORKERS = 8  # tried by prove
_PREFETCH = 4  # batches, tried by prove


def spare_workers(cores: int | None = None) -> int:
    """Half of the cores (default: those this process may use): the rest is for the program."""
    return max(1, most_workers(cores) // 2)


def most_workers(cores: int | None = None) -> int:
    """Workers on all cores: for a program that mostly waits for its batches."""
    return min(2 * _MOST_WORKERS, cores or cores_at_hand())


@contextlib.contextmanager
def loader_workers(count: Callable[[], int] = spare_workers) -> Iterator[None]:
    """Every DataLoader over an indexed dataset gets persistent workers."""

    def settings(torch: Any, given: dict[str, Any]) -> dict[str, Any]:
        # Each worker would yield all items of an iterable dataset, unless it is written for
        # workers.
        if given["num_workers"] or isinstance(given["dataset"], torch.utils.data.IterableDataset):
            return {}
        return {
            "num_workers": count(),
            "persistent_workers": True,
            "prefetch_factor": _PREFETCH,
            "pin_memory": torch.cuda.is_available(),
        }

    with _loaders(settings, "workers for a DataLoader"):
        yield


@contextlib.contextmanager
def pinned_copies() -> Iterator[None]:
    """Batches in pinned memory, and asynchronous copies of them to the device."""

    def settings(torch: Any, given: dict[str, Any]) -> dict[str, Any]:
        return {} if given["pin_memory"] else {"pin_memory": True}

    def arrived(torch: Any, swaps: PatchSet) -> None:
        swaps.swap(torch.Tensor, "to", _without_waiting)
        swaps.swap(torch.Tensor, "cuda", _without_waiting)

    with _loaders(settings, "pinned batches"), when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def _loaders(settings: Any, words: str) -> Iterator[None]:
    """DataLoaders constructed with other arguments."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        def around(original: Any) -> Any:
            signature = inspect.signature(original)

            @functools.wraps(original)
            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
                bound = signature.bind(self, *args, **kwargs)
                bound.apply_defaults()
                changed = settings(torch, bound.arguments)
                if not changed:
                    original(self, *args, **kwargs)
                    return
                given = signature.bind(self, *args, **kwargs)
                given.arguments.update(changed)
                original(*given.args, **given.kwargs)
                note(words)

            return __init__

        from torch.utils.data import DataLoader

        swaps.swap(DataLoader, "__init__", around)

    with when_torch_arrives(arrived):
        yield


def _without_waiting(original: Any) -> Any:
    @functools.wraps(original)
    def copied(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cuda or not self.is_pinned():
            return original(self, *args, **kwargs)
        # In all these signatures, the first positional flag is this one.
        flag = next((place for place, x in enumerate(args) if isinstance(x, bool)), None)
        if flag is None:
            return original(self, *args, **(kwargs | {"non_blocking": True}))
        return original(self, *args[:flag], True, *args[flag + 1 :], **kwargs)

    return copied


def _workers(name: str, count: Callable[[], int], devices: tuple[str, ...]) -> Fix:
    return Fix(
        name=name,
        change=f"DataLoader(..., num_workers={count()}, persistent_workers=True, "
        f"prefetch_factor={_PREFETCH}, pin_memory=torch.cuda.is_available())",
        apply=functools.partial(loader_workers, count),
        devices=devices,
        slot="workers",
        needs_cores=True,
        scope="start",
    )


WORKERS = _workers("workers", spare_workers, ("cpu", "cuda"))
ALL_WORKERS = _workers("workers:all", most_workers, ("cpu",))
PINNED = Fix(
    name="pinned",
    change="DataLoader(..., pin_memory=True); batch.to(device, non_blocking=True)",
    apply=pinned_copies,
    scope="start",
    devices=("cuda",),
)
