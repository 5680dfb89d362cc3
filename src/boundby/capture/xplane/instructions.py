"""Which instruction each device row executes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from boundby.capture.xplane.alignment import Expected, align, schedule
from boundby.capture.xplane.executions import Execution
from boundby.capture.xplane.hlo import Module, Node
from boundby.capture.xplane.programs import Programs
from boundby.capture.xplane.rows import NONE, DeviceRows, Names
from boundby.model import DeviceKind

_Key = tuple[tuple[int, int, bool], ...]


@dataclass(slots=True, frozen=True)
class Executed:
    """A device row's instruction. Rows with the same `turn` execute it together."""

    module: Module
    node: Node
    turn: int


@dataclass(slots=True)
class Instructions:
    """Finds instructions, program by program; equal executions are aligned once."""

    programs: Programs
    names: Names
    _schedules: dict[int, list[Expected]] = field(default_factory=dict)
    _known: dict[tuple[int, _Key], list[Node | None]] = field(default_factory=dict)
    _turns: int = 0

    def of(
        self, execution: Execution, device: DeviceRows, calls: npt.NDArray[np.int64]
    ) -> dict[int, Executed]:
        """The instruction of each device row. `calls`: identifies the launch of each device row."""
        name = self.names.table[execution.module] if execution.module >= 0 else ""
        module = self.programs.find(execution.program, name)
        if module is None:
            return {}
        rows = sorted(execution.rows.tolist(), key=lambda row: (device.start[row], row))
        kernels = [row for row in rows if device.kind[row] != DeviceKind.MEMSET]
        nodes = self._nodes(module, execution.program, kernels, device)
        found: dict[int, Executed] = {}
        before: tuple[object, ...] = ()
        for row, node in zip(kernels, nodes, strict=True):
            if node is None:
                before = ()
                continue
            key = (node.id, int(calls[row]))
            if key != before:
                self._turns += 1
                before = key
            found[row] = Executed(module, node, self._turns)
        # A memset prepares what the kernel after it adds up.
        following: Executed | None = None
        for row in reversed(rows):
            if device.kind[row] == DeviceKind.MEMSET:
                named = self._named(module, device, row)
                if named is not None and (following is None or named.id != following.node.id):
                    self._turns += 1
                    following = Executed(module, named, self._turns)
                if following is not None:
                    found[row] = following
            else:
                following = found.get(row)
        return found

    def _named(self, module: Module, device: DeviceRows, row: int) -> Node | None:
        operation = int(device.operation[row])
        return module.nodes.get(self.names.table[operation]) if operation != NONE else None

    def _nodes(
        self, module: Module, program: int, rows: Sequence[int], device: DeviceRows
    ) -> list[Node | None]:
        """The instruction of each kernel, as the profiler named it or by its position."""
        known = [self._named(module, device, row) for row in rows]
        if all(node is not None for node in known):
            return known
        key: _Key = tuple(
            (int(device.name[row]), int(device.operation[row]), bool(device.graph[row]))
            for row in rows
        )
        found = self._known.get((program, key))
        if found is None:
            found = self._align(module, program, rows, known, device)
            self._known[program, key] = found
        return found

    def _align(
        self,
        module: Module,
        program: int,
        rows: Sequence[int],
        known: Sequence[Node | None],
        device: DeviceRows,
    ) -> list[Node | None]:
        expected = self._schedules.get(program)
        if expected is None:
            expected = self._schedules[program] = schedule(module)
        # A loop launches the same buffer again and again: its first launch is used for all.
        launches = _launches(rows, known, device)
        table = self.names.table
        first: dict[int, list[int]] = {}
        chosen: list[int] = []
        for members in launches:
            operation = int(device.operation[rows[members[0]]])
            if operation == NONE or operation not in first:
                first[operation] = members
                chosen += members
        names = [table[device.name[rows[member]]] for member in chosen]
        at = align(names, [known[member] for member in chosen], expected)
        found: list[Node | None] = list(known)
        position = dict(zip(chosen, at, strict=True))
        for member, place in position.items():
            if place >= 0 and found[member] is None:
                found[member] = expected[place].node
        for members in launches:
            model = first.get(int(device.operation[rows[members[0]]]))
            if model is None or model is members or known[members[0]] is not None:
                continue
            same = [table[device.name[rows[member]]] for member in members]
            if same == [table[device.name[rows[member]]] for member in model]:
                for member, twin in zip(members, model, strict=True):
                    found[member] = found[twin]
                continue
            places = sorted({position[member] for member in model if position[member] >= 0})
            part = [expected[place] for place in places]
            for member, place in zip(members, align(same, [None] * len(same), part), strict=True):
                found[member] = part[place].node if place >= 0 else None
        return found


def _launches(
    rows: Sequence[int], known: Sequence[Node | None], device: DeviceRows
) -> list[list[int]]:
    """Positions in `rows`, one list for each launch of a graph and each kernel outside of one."""
    found: list[list[int]] = []
    before: tuple[int, int] | None = None
    for at, row in enumerate(rows):
        key = (int(device.correlation[row]), int(device.operation[row]))
        if known[at] is None and key == before and device.correlation[row] != NONE:
            found[-1].append(at)
        else:
            found.append([at])
        before = key if known[at] is None else None
    return found
