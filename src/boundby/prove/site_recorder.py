"""Records where the user's source makes and uses models, optimizers and loaders, and which lines
ran."""

from __future__ import annotations

import functools
import sys
import sysconfig
import weakref
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from boundby.capture.own_files import is_generated_file, is_own_file
from boundby.prove.sites import ObjectSite, ProgramSites, Site
from boundby.runtime.import_hooks import when_imported
from boundby.runtime.patching import PatchSet

_MAX_FRAMES = 8  # time limit
_INSTALLED = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_TOOL = "boundby.prove"


class SiteRecorder:
    """Records from the script's first line; call `close` when the lines of whole steps have run."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._made: weakref.WeakKeyDictionary[Any, tuple[Site, ...]] = weakref.WeakKeyDictionary()
        self._used: dict[int, dict[Site, None]] = {}
        self._evaluated: dict[int, dict[Site, None]] = {}
        self._trained: dict[int, dict[Site, None]] = {}
        self._seen: dict[str, dict[int, Any]] = {"models": {}, "optimizers": {}, "loaders": {}}
        self._calls: dict[Site, None] = {}
        self._backwards: dict[Site, None] = {}
        self._steps: dict[Site, None] = {}
        self._swaps = PatchSet()

    def begin(self) -> None:
        self._lines.begin()
        when_imported("torch", self._watch_constructors)

    def close(self) -> None:
        self._lines.close()
        self._swaps.undo()

    def module_called(self, module: Any, *, is_recorded: bool) -> None:
        """`is_recorded`: by autograd."""
        self._note(self._calls, module, "models")
        for site in user_frames()[:1]:
            if getattr(module, "training", True):
                self._trained.setdefault(id(module), {})[site] = None
            elif is_recorded:
                self._evaluated.setdefault(id(module), {})[site] = None

    def backward(self) -> None:
        for site in user_frames()[:1]:
            self._backwards[site] = None

    def optimizer_stepped(self, optimizer: Any) -> None:
        self._note(self._steps, optimizer, "optimizers")

    def _note(self, sites: dict[Site, None], used: Any, role: str) -> None:
        frames = user_frames()
        self._seen[role][id(used)] = used
        for site in frames[:1]:
            sites[site] = None
            self._used.setdefault(id(used), {})[site] = None

    def of(self, objects: Sequence[Any]) -> list[ObjectSite]:
        return [self._site_of(item) for item in objects]

    def program_sites(self) -> ProgramSites:
        torch = sys.modules.get("torch")
        is_cuda = torch is not None and torch.cuda.is_initialized()
        return ProgramSites(
            device="cuda" if is_cuda else "cpu",
            **{role: self.of(list(objects.values())) for role, objects in self._seen.items()},
            forward_calls=list(self._calls),
            backward_calls=list(self._backwards),
            optimizer_steps=list(self._steps),
            executed=self._lines.executed(),
        )

    def _site_of(self, one: Any) -> ObjectSite:
        return ObjectSite(
            type_name=type(one).__name__,
            module_name=type(one).__module__,
            made=list(self._made.get(one, ())),
            used=list(self._used.get(id(one), ())),
            recorded_evaluations=list(self._evaluated.get(id(one), ())),
            trained=list(self._trained.get(id(one), ())),
        )

    def _watch_constructors(self, torch: Any) -> None:
        self._swaps.swap(torch.nn.Module, "__init__", self._around_init)
        self._swaps.swap(torch.optim.Optimizer, "__init__", self._around_init)

        def loader(original: Any) -> Any:
            @functools.wraps(original)
            def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
                original(loader, *args, **kwargs)
                self._made[loader] = user_frames(loader)
                self._seen["loaders"][id(loader)] = loader

            return __init__

        self._swaps.swap(torch.utils.data.DataLoader, "__init__", loader)

    def _around_init(self, original: Any) -> Any:
        made = self._made

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            # Modules compare by identity; one that does not cannot be a key.
            try:
                made[self] = user_frames(self)
            except TypeError:
                return

        return __init__


def user_frames(made: Any = None) -> tuple[Site, ...]:
    """The user's frames, innermost first; without those of the constructors of `made`."""
    frames: list[Site] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) < _MAX_FRAMES:
        code = frame.f_code
        in_constructor = (
            made is not None
            and code.co_name == "__init__"
            and code.co_varnames
            and frame.f_locals.get(code.co_varnames[0]) is made
        )
        if not in_constructor and is_user_file(code.co_filename):
            frames.append(Site(file=code.co_filename, line=frame.f_lineno, function=code.co_name))
        frame = frame.f_back
    return tuple(frames)


_user_files: dict[str, bool] = {}


def is_user_file(name: str) -> bool:
    """Whether a file is the user's: not installed, of the standard library, boundby's or a
    compiler's."""
    is_user = _user_files.get(name)
    if is_user is None:
        is_user = _user_files[name] = not (
            name.startswith(("<", *_STANDARD_LIBRARY))
            or any(folder in name for folder in _INSTALLED)
            or not name.endswith(".py")
            or is_own_file(name)
            or is_generated_file(name)
        )
    return is_user


class _Lines:
    """Records which lines of the user's files were executed.

    Python 3.12 reports each line once and then costs nothing. Earlier versions call a trace
    function for every function of the program: then only until the first steps are over.
    """

    def __init__(self) -> None:
        self._lines: dict[str, set[int]] = {}

    def executed(self) -> dict[str, list[int]]:
        return {file: sorted(lines) for file, lines in self._lines.items()}

    if sys.version_info >= (3, 12):

        def begin(self) -> None:
            monitoring = sys.monitoring
            tool = monitoring.OPTIMIZER_ID
            if monitoring.get_tool(tool) is not None:
                return
            monitoring.use_tool_id(tool, _TOOL)
            monitoring.register_callback(tool, monitoring.events.PY_START, self._started)
            monitoring.register_callback(tool, monitoring.events.LINE, self._line)
            monitoring.set_events(tool, monitoring.events.PY_START)

        def _started(self, code: CodeType, _: int) -> Any:
            if is_user_file(code.co_filename):
                monitoring = sys.monitoring
                monitoring.set_local_events(monitoring.OPTIMIZER_ID, code, monitoring.events.LINE)
            return sys.monitoring.DISABLE

        def _line(self, code: CodeType, line: int) -> Any:
            self._lines.setdefault(code.co_filename, set()).add(line)
            return sys.monitoring.DISABLE

        def close(self) -> None:
            """Stop recording lines. On Python 3.12 later lines are reported as well, at no cost."""

    else:

        def begin(self) -> None:
            if sys.gettrace() is None:
                sys.settrace(self._called)

        def _called(self, frame: FrameType, event: str, _: Any) -> Any:
            file = frame.f_code.co_filename
            if not is_user_file(file):
                return None
            lines = self._lines.setdefault(file, set())

            def line(frame: FrameType, event: str, _: Any) -> Any:
                lines.add(frame.f_lineno)
                return line

            return line

        def close(self) -> None:
            if sys.gettrace() == self._called:
                sys.settrace(None)
            frame: FrameType | None = sys._getframe()
            while frame is not None:
                frame.f_trace = None
                frame = frame.f_back
