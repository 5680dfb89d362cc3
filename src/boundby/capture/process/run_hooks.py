"""Hooks for other parts of a script: checkpoints, logs, workers that start.

Each function is timed on the thread that takes the steps, and works as before. It is replaced when
its module is imported; nothing is imported for that.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from boundby.capture.own_files import is_own_file
from boundby.capture.own_frames import skipped_by_warnings
from boundby.capture.process.guard import Guard
from boundby.capture.process.run_clock import RunClock
from boundby.runtime.patching import PatchSet

if TYPE_CHECKING:
    from boundby.model.run import RunPartName

# By module: functions that write a checkpoint or a log line, as attribute paths.
_DOORS: dict[str, dict[str, RunPartName]] = {
    "safetensors.torch": {"save_file": "checkpoint", "save_model": "checkpoint"},
    "torch.distributed.checkpoint": {"save": "checkpoint"},
    "joblib": {"dump": "checkpoint"},
    "torch.utils.tensorboard.writer": {
        "SummaryWriter.add_scalar": "logging",
        "SummaryWriter.add_scalars": "logging",
        "SummaryWriter.add_histogram": "logging",
        "SummaryWriter.add_image": "logging",
        "SummaryWriter.add_figure": "logging",
        "SummaryWriter.flush": "logging",
    },
    "tensorboardX.writer": {
        "SummaryWriter.add_scalar": "logging",
        "SummaryWriter.add_scalars": "logging",
        "SummaryWriter.add_histogram": "logging",
        "SummaryWriter.flush": "logging",
    },
    "wandb": {"log": "logging"},
    "mlflow": {"log_metric": "logging", "log_metrics": "logging"},
    "logging": {"Handler.handle": "logging"},
}
_LIBRARIES = ("site-packages/", "dist-packages/", "lib/python3", "<frozen", "<string>")


@skipped_by_warnings
class RunHooks:
    """Reports calls of these functions to a run clock, on the thread that created it."""

    def __init__(self, run: RunClock, guard: Guard) -> None:
        self._run = run
        self._do = guard.do
        self._swaps = PatchSet()
        self._thread = threading.get_ident()
        self._depth = 0

    def install(self) -> None:
        """Replace functions of modules that are already loaded."""
        for name in _DOORS:
            self.module_loaded(name)

    def module_loaded(self, name: str) -> None:
        """Replace functions of a module that was just imported."""
        if name in _DOORS and name in sys.modules:
            self._do(self._swap_all, _DOORS[name], sys.modules[name])

    def torch_arrived(self, torch: ModuleType) -> None:
        self._swaps.swap(torch, "save", functools.partial(self._around, "checkpoint"))
        loader = torch.utils.data.DataLoader
        self._swaps.swap(loader, "__iter__", self._around_iter)

    def remove(self) -> None:
        self._swaps.undo()

    def _swap_all(self, doors: dict[str, RunPartName], module: ModuleType) -> None:
        for path, part in doors.items():
            owner: Any = module
            *outer, name = path.split(".")
            for one in outer:
                owner = getattr(owner, one, None)
            if owner is not None:
                self._swaps.swap(owner, name, functools.partial(self._around, part))

    def _begins(self, part: RunPartName, where: str | None = None) -> bool:
        """Whether this is the outermost such call on the thread of the steps; then the part
        begins."""
        if self._depth or threading.get_ident() != self._thread:
            return False
        self._depth = 1
        self._do(self._run.enter, part, where or self._do(calling_line))
        return True

    def _ends(self) -> None:
        self._depth = 0
        self._do(self._run.leave)

    def _around(self, part: RunPartName, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if _is_compiling() or not hooks._begins(part):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                hooks._ends()

        return timed

    def _around_iter(self, original: Any) -> Any:
        hooks = self

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            where = None if _is_compiling() else hooks._do(calling_line)
            if where is None or not hooks._begins("data_start", where):
                return original(loader)
            try:
                iterator = original(loader)
            finally:
                hooks._ends()
            hooks._do(hooks._started, loader, iterator, where)
            return iterator

        return __iter__

    def _started(self, loader: Any, iterator: Any, where: str) -> None:
        try:
            length = len(loader)
        except TypeError:  # an iterable dataset
            length = None
        workers = int(loader.num_workers)
        self._run.loader_started(id(loader), id(iterator), length, workers, where)


def calling_line() -> str | None:
    """The script's innermost line that led here, as "train.py:57"."""
    frame: FrameType | None = sys._getframe(1)
    library: str | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_own_file(file):
            if not any(part in file for part in _LIBRARIES):
                return f"{_trimmed(file)}:{frame.f_lineno}"
            library = library or f"{_trimmed(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return library


def _trimmed(file: str) -> str:
    roots = sorted((f"{root}/" for root in sys.path if root), key=len, reverse=True)
    root = next((root for root in roots if file.startswith(root)), "")
    return file[len(root) :]


def _is_compiling() -> bool:
    torch = sys.modules.get("torch")
    ask: Callable[[], bool] | None = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return ask is not None and ask()
