"""Compiled graphs in a timeline: the name, call and line of everything that each has called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from boundby.capture.torch.compiled_code import CompiledGraph
from boundby.model import HostKind, OpCall, Timeline

_BEGIN, _END = "## Call CompiledFxGraph ", " ##"
_KERNEL = "<built-in function kernel>"
Graphs = Mapping[str, CompiledGraph]


def with_compiled_kernels(timeline: Timeline, graphs: Graphs) -> Timeline:
    """The timeline with the C++ kernels of its compiled graphs as operators, by their names."""
    if _KERNEL not in timeline.names:
        return timeline
    host = timeline.host
    kernel = timeline.names.index(_KERNEL)
    name, kind, call = host.name.copy(), host.kind.copy(), host.call.copy()
    names: dict[str, int] = {}
    calls: dict[OpCall, int] = {}
    for graph, rows in _called(timeline, graphs):
        kernels = [row for row in rows if host.name[row] == kernel]
        if len(kernels) != len(graph.kernels):
            continue
        for row, made in zip(kernels, graph.kernels, strict=True):
            name[row] = names.setdefault(made.name, len(timeline.names) + len(names))
            call[row] = calls.setdefault(made, len(timeline.calls) + len(calls))
            kind[row] = HostKind.OP
    return msgspec.structs.replace(
        timeline,
        host=msgspec.structs.replace(host, name=name, kind=kind, call=call),
        names=[*timeline.names, *names],
        calls=[*timeline.calls, *calls],
    )


def compiled_lines(timeline: Timeline, graphs: Graphs) -> dict[int, str]:
    """The lines of what compiled graphs have called, and of all inside it, by row."""
    lines: dict[int, str] = {}
    for graph, rows in _called(timeline, graphs):
        by_name: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            by_name[timeline.names[timeline.host.name[row]].rpartition("::")[2]].append(row)
        for name, behind in graph.lines.items():
            if len(by_name[name]) == len(behind):
                pairs = zip(by_name[name], behind, strict=True)
                lines.update((row, line) for row, line in pairs if line)
    if lines:
        for row, parent in enumerate(timeline.host.parent.tolist()):
            if parent in lines:
                lines.setdefault(row, lines[parent])
    return lines


def _called(timeline: Timeline, graphs: Graphs) -> list[tuple[CompiledGraph, list[int]]]:
    """For each call of a compiled graph, the operators and kernels that it calls itself."""
    host = timeline.host
    known = [
        graphs.get(name.removeprefix(_BEGIN).removesuffix(_END))
        if name.startswith(_BEGIN)
        else None
        for name in timeline.names
    ]
    if not any(known):
        return []
    kernel = [name == _KERNEL for name in timeline.names]
    found: list[tuple[CompiledGraph, list[int]]] = []
    # By row: the position in `found` of the graph around it; None in what such a graph has called.
    around: list[int | None] = []
    columns = (host.parent.tolist(), host.name.tolist(), host.kind.tolist())
    for row, (parent, name, kind) in enumerate(zip(*columns, strict=True)):
        place = around[parent] if parent >= 0 else None
        graph = known[name]
        if graph is not None:
            place = len(found)
            found.append((graph, []))
        elif place is not None and (kind == HostKind.OP or kernel[name]):
            found[place][1].append(row)
            place = None
        around.append(place)
    return found
