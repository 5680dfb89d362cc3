"""Lines and functions that make the same tensors in every step, and lines that keep graphs alive.

Line events (`sys.settrace`) show which variables a line has bound; only steps that are not timed
have them, and nothing of torch is replaced.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from boundby.capture.torch.evidence.bound_lines import BoundLines
from boundby.capture.torch.evidence.code_names import named_at
from boundby.capture.torch.evidence.continued import (
    ContinuedPrints,
    makes_tensors,
    may_coincide,
)
from boundby.capture.torch.evidence.fills import Fill, InPlaceFills, same_fills
from boundby.capture.torch.evidence.kept_graphs import KeptGraphs
from boundby.capture.torch.evidence.places import user_line
from boundby.capture.torch.modes import outside_modes
from boundby.model.evidence import RebuiltTensor

_MOST_EVENTS = 300_000  # time limit
_MOST_VISITS = 500  # memory and time limit: of a line in a loop, in one step
_MOST_PARTS = 16  # of a result

Key = tuple[str, str, int]  # line, variable, which time in the step


@dataclass(slots=True, kw_only=True)
class _Bound:
    print: Any
    made: Any  # the fingerprint when it was bound; the value may be changed later
    bytes: float
    seen: Any  # the fingerprint, also of what may coincide or has only grown
    value: Any = None  # kept in the last step, to see whether it is changed later
    version: int = 0


@dataclass(slots=True, kw_only=True)
class _Returned:
    """The result of a call of a user's function, and the lines that it ran."""

    print: Any
    seen: Any  # the same, also of what has only grown
    lines: dict[str, None]
    called_at: str


class AssignmentReader:
    """Records the values that each of the user's lines binds and each function returns, step by
    step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.step = 0
        self._events = 0
        self._bound: list[dict[Key, _Bound]] = [{}]
        self._returned: list[dict[Key, _Returned]] = [{}]
        self._lines_run: dict[int, dict[str, None]] = {}  # by frame, from its call on
        self._fills = InPlaceFills(torch)
        self._filled: list[dict[Key, Fill]] = []
        # By function and line: a comprehension runs its line in functions of its own.
        self._visits: dict[tuple[str, str], int] = defaultdict(int)
        self._counts: dict[tuple[str, str], int] = defaultdict(int)
        self._before: dict[int, dict[str, int]] = {}
        self._lines: dict[int, tuple[str, int]] = {}  # the latest line that bound an object
        self.kept_graphs = KeptGraphs(torch)
        self._entered: set[int] = set()  # frames of the functions that were called in this step
        self.bound_lines = BoundLines(torch)
        self._prints = ContinuedPrints(torch)
        self._running = False

    def start(self) -> None:
        if sys.gettrace() is not None:
            return
        self._running = True
        hide_from_dynamo(AssignmentReader)
        sys.settrace(self._on_call)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if user_line(frame.f_code, frame.f_lineno) is not None:
                frame.f_trace = self._on_line
                self._remember(frame)
            frame = frame.f_back

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        if sys.gettrace() == self._on_call:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace == self._on_line:
                frame.f_trace = None
            frame = frame.f_back

    def next_step(self) -> None:
        self.kept_graphs.step_ended()
        self._entered.clear()
        for bound in self._bound[-1].values():
            if bound.value is not None and bound.value._version != bound.version:
                bound.print = None
            bound.value = None
        self._filled.append(self._fills.step_ended())
        self.step += 1
        self._bound.append({})
        self._returned.append({})
        self._counts.clear()
        self._visits.clear()
        self._events = 0

    def rebuilt(self) -> list[RebuiltTensor]:
        """Lines that bound only the same values in every complete step."""
        steps = self._bound[: self.step]
        if len(steps) < 2:
            return []
        lines: dict[str, list[bool]] = defaultdict(list)
        names: dict[str, dict[str, None]] = defaultdict(dict)
        size: dict[str, float] = defaultdict(float)
        for key, bound in steps[-1].items():
            line, name, _ = key
            prints = [one[key].print if key in one else None for one in steps]
            lines[line].append(bound.print is not None and all(p == bound.print for p in prints))
            names[line][name] = None
            size[line] += bound.bytes
        found = {
            line: RebuiltTensor(
                where=line, names=list(names[line]), bytes=size[line], times=len(same)
            )
            for line, same in lines.items()
            if all(same)
        }
        for one in (*self._same_results(), *self._same_fills(), *self._same_within_steps()):
            found.setdefault(one.where, one)
        return list(found.values())

    def _same_within_steps(self) -> Iterator[RebuiltTensor]:
        """Lines that bound one value several times in each whole step, with other values in
        others."""
        values: dict[str, list[dict[str, list[Any]]]] = defaultdict(list)
        sizes: dict[str, float] = defaultdict(float)
        for step in self._bound[: self.step]:
            names: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
            for (line, name, _), bound in step.items():
                names[line][name].append(bound.print)
                sizes[line] += bound.bytes / self.step
            for line, prints in names.items():
                values[line].append(prints)
        for line, steps in values.items():
            each = [prints for step in steps for prints in step.values()]
            is_one = all(len(set(prints)) == 1 and prints[0] is not None for prints in each)
            times = min(len(prints) for prints in each)
            if len(steps) == self.step and is_one and times > 1:
                yield RebuiltTensor(
                    where=line,
                    names=list(steps[-1]),
                    bytes=sizes[line],
                    times=times,
                    once_a_step=True,
                )

    def _same_fills(self) -> list[RebuiltTensor]:
        """Lines that fill tensors in place with the same values in every step."""
        varied = self._varied_lines()
        return [
            RebuiltTensor(where=line, names=[name], bytes=fill.bytes, times=1)
            for name, fill in same_fills(self._filled)
            for line in fill.lines
            if line not in varied
        ]

    def _same_results(self) -> list[RebuiltTensor]:
        """Lines of functions whose results, and all that they bound on the way, were the same in
        every whole step, also where they change a tensor of theirs before they return it."""
        calls = self._returned[: self.step]
        varied = self._varied_lines()
        functions: dict[tuple[str, str], list[_Returned]] = defaultdict(list)
        differ: set[tuple[str, str]] = set()
        for key, last in calls[-1].items():
            functions[key[:2]].append(last)
            prints = [one[key].print if key in one else None for one in calls]
            if last.print is None or any(one != last.print for one in prints):
                differ.add(key[:2])
            if varied.intersection(last.lines):
                differ.add(key[:2])
        within = {one for one in differ if self._is_same_within_steps(one)}
        return [
            RebuiltTensor(
                where=line,
                names=[f"{name}(...)"],
                bytes=0.0,
                times=len(made),
                called_at=called_at,
                once_a_step=(place, name) in within,
            )
            for (place, name), made in functions.items()
            if (place, name) not in differ or (place, name) in within
            for line, called_at in {at: one.called_at for one in made for at in one.lines}.items()
        ]

    def _is_same_within_steps(self, function: tuple[str, str]) -> bool:
        """Whether each whole step called a function several times with one result, and one value
        for each name that it bound."""
        for returned, bound in zip(
            self._returned[: self.step], self._bound[: self.step], strict=True
        ):
            made = [one for key, one in returned.items() if key[:2] == function]
            prints = {one.seen for one in made}
            if len(made) < 2 or len(prints) != 1 or None in prints:
                return False
            lines = {line for one in made for line in one.lines}
            names: dict[tuple[str, str], set[Any]] = defaultdict(set)
            for (line, name, _), value in bound.items():
                if line in lines:
                    names[line, name].add(value.seen)
            if any(len(values) != 1 or None in values for values in names.values()):
                return False
        return self.step > 0

    def _varied_lines(self) -> set[str]:
        """Lines that bound different values in different complete steps."""
        steps = self._bound[: self.step]
        return {
            key[0]
            for key, last in steps[-1].items()
            if last.made is None
            or any(key not in one or one[key].made != last.made for one in steps)
        }

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        if not self._running or user_line(frame.f_code, frame.f_lineno) is None:
            return None
        self._remember(frame)
        self._entered.add(id(frame))
        if not frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            self._lines_run[id(frame)] = {}
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if not self._running:
            return None
        self._events += 1
        if self._events > _MOST_EVENTS:
            return None
        if event in ("line", "return"):
            try:
                with outside_modes(self._torch):
                    self._look(frame)
                    if event == "return":
                        self._look_at_result(frame, arg)
            except Exception:  # noqa: BLE001 - the script's own objects may raise when asked
                return None
            if event == "return":
                self._before.pop(id(frame), None)
                self._fills.function_returned(id(frame))
        return self._on_line

    def _remember(self, frame: FrameType) -> None:
        self._before[id(frame)] = {name: id(one) for name, one in _locals(frame).items()}
        self._lines[id(frame)] = ("", frame.f_lineno)

    def _look(self, frame: FrameType) -> None:
        """Record what the previous line has bound."""
        before = self._before.get(id(frame))
        if before is None:
            return
        _, number = self._lines[id(frame)]
        self._lines[id(frame)] = ("", frame.f_lineno)
        line = user_line(frame.f_code, number)
        if line is None:
            return
        if id(frame) in self._lines_run:
            self._lines_run[id(frame)][line] = None
        self._fills.line_ran(id(frame), line)
        self.kept_graphs.line_ran(line, frame, number)
        function = frame.f_code.co_name
        self._visits[function, line] += 1
        if self._visits[function, line] > _MOST_VISITS:
            following = user_line(frame.f_code, frame.f_lineno)
            if following is None or self._visits.get((function, following), 0) <= _MOST_VISITS:
                # What the loop has bound is not to be put down to the line after it.
                self._before[id(frame)] = {name: id(one) for name, one in _locals(frame).items()}
            return
        torch = self._torch
        for name, one in _locals(frame).items():
            if not isinstance(one, torch.Tensor) and type(one).__name__ != "ndarray":
                continue
            if before.get(name) == id(one):
                continue
            before[name] = id(one)
            self.bound_lines.bind(one, line)
            if isinstance(one, torch.Tensor) and one.grad_fn is not None:
                if id(frame) not in self._entered:
                    self.kept_graphs.bound(line, name, frame, number)
                self._add(line, name, None, 0.0, None, None)
                continue
            size = one.nbytes if hasattr(one, "nbytes") else 0
            count = self._counts[line, name]
            seen = print_ = self._prints.of((line, name, count), one)
            if self._prints.only_grew((line, name, count)) and not makes_tensors(
                frame.f_code, number
            ):
                print_ = None
            if print_ is not None and may_coincide(torch, one, named_at(frame.f_code, number)):
                print_ = None
            key = self._add(line, name, print_, float(size), one, seen)
            if isinstance(one, torch.Tensor):
                self._fills.bind(id(frame), key, one)

    def _look_at_result(self, frame: FrameType, result: object) -> None:
        lines = self._lines_run.pop(id(frame), None)
        defined = user_line(frame.f_code, frame.f_code.co_firstlineno)
        if not lines or defined is None:
            return
        parts = list(result) if isinstance(result, list | tuple) else [result]
        if not 0 < len(parts) <= _MOST_PARTS:
            return
        place = defined, frame.f_code.co_name
        count = self._counts[place]
        keys = [(*place, count, at) for at in range(len(parts))]
        seen = [self._print_of(key, one, frame) for key, one in zip(keys, parts, strict=True)]
        grew = any(map(self._prints.only_grew, keys))
        self._counts[place] += 1
        caller = frame.f_back
        called_at = user_line(caller.f_code, caller.f_lineno) if caller is not None else None
        prints = None if None in seen else tuple(seen)
        self._returned[-1][*place, count] = _Returned(
            print=None if grew else prints, seen=prints, lines=lines, called_at=called_at or ""
        )

    def _print_of(self, key: Hashable, value: object, frame: FrameType) -> Any:
        if may_coincide(self._torch, value, frame.f_code.co_names):
            return None
        if isinstance(value, self._torch.Tensor) and (value.requires_grad or value.is_inference()):
            return None
        return self._prints.of(key, value)

    def _add(self, line: str, name: str, print_: Any, size: float, value: Any, seen: Any) -> Key:
        count = self._counts[line, name]
        self._counts[line, name] += 1
        key = line, name, count
        bound = _Bound(print=print_, made=print_, bytes=size, seen=seen)
        if print_ is not None and isinstance(value, self._torch.Tensor):
            if value.requires_grad:
                bound.print = None
            elif not value.is_inference():
                bound.value, bound.version = value, value._version
        self._bound[-1][key] = bound
        return key


def _locals(frame: FrameType) -> dict[str, Any]:
    # A copy: the script continues meanwhile.
    return dict(frame.f_locals)


def hide_from_dynamo(*owners: type) -> None:
    """Exclude these frames from Dynamo, if it is loaded."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        return
    functions: list[Callable[..., Any]] = [
        one for owner in owners for one in vars(owner).values() if hasattr(one, "__code__")
    ]
    for function in functions:
        dynamo.skip_code(function.__code__)
