"""Where host work comes from: its phase, its module and its Python line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.events import NONE
from boundby.capture.kineto.names import Frame, Origin, frame_of, module_of
from boundby.capture.kineto.nesting import Rows, active_at, matching, nearest
from boundby.capture.kineto.rows import HostRows
from boundby.model import PYTHON_FRAMES, HostKind, Phase

Mask = npt.NDArray[np.bool_]

ENGINE = "autograd::engine::"
# Traces from before the engine marked its work have only the node's name.
_BACKWARD_NODE = re.compile(r"^\w+Backward\d*$")
_BACKWARD_CALL = re.compile(
    r"torch/(?:_tensor|autograd/__init__|autograd/graph)\.py\(\d+\): (?:backward|grad|_engine_run_)"
    r"|<built-in method run_backward"
)
_OPTIMIZER = re.compile(
    r"^Optimizer\.(?:step|zero_grad)#|torch/optim/\w+\.py\(\d+\): (?:step|zero_grad)$"
)


_TORCH_STEP = re.compile(r"(?:^|/)torch/optim/\w+\.py\(\d+\): step$")
_OF_TORCH = re.compile(r"(?:^|/)torch/|^<|^nn\.Module: ")

# Backwards of backwards, up to this depth.
_MOST_BACKWARDS = 4

_DECISIVE = [Phase.BACKWARD, Phase.OPTIMIZER, Phase.FORWARD]


@dataclass(slots=True, frozen=True)
class Origins:
    phase: npt.NDArray[np.int8]
    forward: Rows
    source: Rows
    module: Rows
    sources: list[str]
    modules: list[str]


def trace_origins(host: HostRows, parent: Rows, names: list[str], stacks: list[str]) -> Origins:
    """Phase, source line and module of every row; a backward row takes its forward's."""
    node = _nodes(host, names)
    phase = _phases(host, parent, names, node)
    forward = _forward_rows(host, parent, node)
    frames = [frame_of(name) for name in names]
    anchor = _anchors(host, parent, forward, frames)
    source, sources = _sources(host, anchor, frames, stacks)
    module, modules = _modules(host, parent, forward, names)
    around = nearest(parent, forward != NONE)
    belongs = np.append(forward, NONE).astype(np.int32)[around]
    return Origins(phase, belongs, source, module, sources, modules)


def named(host: HostRows, names: list[str], test: Callable[[str], object]) -> Mask:
    """A mask of the rows whose name passes the test; each distinct name is tested once."""
    passes = np.array([bool(test(name)) for name in names], np.bool_)
    return passes[host.name] if len(names) else np.zeros(0, np.bool_)


def _nodes(host: HostRows, names: list[str]) -> Mask:
    """Rows in which the backward runs one node of its graph."""
    found = named(host, names, lambda name: name.startswith(ENGINE) or _BACKWARD_NODE.match(name))
    nodes: Mask = (host.kind == HostKind.OP) & (found | (host.forward_thread > 0))
    return nodes


def _phases(host: HostRows, parent: Rows, names: list[str], nodes: Mask) -> npt.NDArray[np.int8]:
    operator = host.kind == HostKind.OP
    python = (host.kind == HostKind.PYTHON) | (host.kind == HostKind.ANNOTATION)
    backward = nodes | (python & named(host, names, _BACKWARD_CALL.search))
    optimizer = python & named(host, names, _OPTIMIZER.search)
    module = python & named(host, names, module_of)
    phase = np.full(len(parent), Phase.OTHER, np.int8)
    phase[nearest(parent, operator) != NONE] = Phase.FORWARD
    # The innermost decides: an optimizer may step inside the backward, a closure run forward and
    # backward inside the optimizer. Only a module run again inside the backward stays backward.
    own = np.select([backward, optimizer, module], _DECISIVE, Phase.OTHER)
    closure = _closures(host, parent, names, backward)
    around = nearest(parent, (own != Phase.OTHER) | closure)
    # What a closure does beside, such as its loss, is no update.
    inside = (around != NONE) & ~closure[around]
    phase[inside] = own[around[inside]]
    phase[(phase == Phase.FORWARD) & (nearest(parent, backward) != NONE)] = Phase.BACKWARD
    return phase


def _closures(host: HostRows, parent: Rows, names: list[str], backward: Mask) -> Mask:
    """Functions that an optimizer of torch's calls in its step, and that run a backward."""
    step = (host.kind == HostKind.PYTHON) & named(host, names, _TORCH_STEP.search)
    if not step.any():
        return np.zeros(len(parent), np.bool_)
    around = np.zeros(len(parent), np.bool_)
    rows = np.flatnonzero(backward)
    while len(rows):
        rows = np.unique(parent[rows])
        rows = rows[(rows != NONE) & ~around[rows]]
        around[rows] = True
    of_others = (host.kind == HostKind.PYTHON) & ~named(host, names, _OF_TORCH.search)
    found: Mask = around & of_others & ~backward & (nearest(parent, step) != NONE)
    return found


def _forward_rows(host: HostRows, parent: Rows, nodes: Mask) -> Rows:
    """For nodes of the backward with a sequence number, the forward row that drew it.

    Operators that draw none report the next one to be drawn, so several share a number: the one
    that starts last, the innermost, is the one that drew it.
    """
    forward = np.full(len(parent), NONE, np.int32)
    numbered = host.sequence >= 0
    drew = np.flatnonzero(numbered & ~nodes & (host.kind == HostKind.OP))
    asks = np.flatnonzero(numbered & nodes)
    if not len(drew) or not len(asks):
        return forward
    by_start = drew[np.argsort(host.start[drew], kind="stable")]
    found = matching(host.sequence[by_start] + 1, host.sequence[asks] + 1)
    forward[asks] = np.where(found == NONE, NONE, by_start[found])
    return _through_backward(host, parent, forward)


def _through_backward(host: HostRows, parent: Rows, forward: Rows) -> Rows:
    """A backward of a backward belongs to the first one's operation; a block that runs again, with
    its own Python, is its own forward."""
    node = nearest(parent, forward != NONE)
    frame = nearest(parent, np.isin(host.kind, PYTHON_FRAMES))
    for _ in range(_MOST_BACKWARDS):
        drew = np.maximum(forward, 0)
        inner = (forward != NONE) & (node[drew] != NONE) & (frame[drew] <= node[drew])
        if not inner.any():
            break
        forward = np.where(inner, forward[node[drew]], forward).astype(np.int32)
    return forward


def _anchors(host: HostRows, parent: Rows, forward: Rows, frames: list[Frame]) -> Rows:
    """For each row the Python frame, or the row with a recorded stack, that gives its line."""
    python = np.isin(host.kind, PYTHON_FRAMES)
    origin = np.array([int(frame.origin) for frame in frames] or [0], np.int8)[host.name]
    origin[~python & (host.kind != HostKind.DATA)] = Origin.NOT_A_FRAME
    recorded = host.stack != NONE
    caller = _calling_thread(host, origin)
    anchor = np.full(len(parent), NONE, np.int32)
    for wanted in (origin == Origin.USER, origin == Origin.LIBRARY):
        own = nearest(parent, wanted | recorded)
        found = _through_forward(own, parent, forward)
        alone = np.flatnonzero((found == NONE) & (host.thread != caller))
        if caller != NONE and len(alone):
            # The backward has its own thread: it gets the line that waits for it.
            waiting = active_at(host, parent, caller, host.start[alone])
            found[alone] = np.where(waiting == NONE, NONE, own[waiting])
        anchor = np.where(anchor == NONE, found, anchor)
    return anchor


def _through_forward(own: Rows, parent: Rows, forward: Rows) -> Rows:
    """Give a backward row its forward's answer, unless its own is deeper than the node."""
    node = nearest(parent, forward != NONE)
    linked = node != NONE
    answer = np.full(len(own), NONE, np.int32)
    answer[linked] = own[forward[node[linked]]]
    return np.where(linked & (answer != NONE) & (own <= node), answer, own)


def _calling_thread(host: HostRows, origin: npt.NDArray[np.int8]) -> int:
    """The thread with most of the user's Python frames, or with most frames."""
    for wanted in (origin == Origin.USER, origin != Origin.NOT_A_FRAME):
        if wanted.any():
            return int(np.bincount(host.thread[wanted]).argmax())
    return NONE


def _sources(
    host: HostRows, anchor: Rows, frames: list[Frame], stacks: list[str]
) -> tuple[Rows, list[str]]:
    table: dict[str, int] = {}
    by_name = [table.setdefault(f.source, len(table)) if f.source else NONE for f in frames]
    lines = [_line_of(stack.split(";")) for stack in stacks]
    by_stack = [table.setdefault(line, len(table)) if line else NONE for line in lines]
    row = np.maximum(anchor, 0)
    stack = host.stack[row]
    from_name = np.array(by_name or [NONE], np.int32)[host.name[row]]
    from_stack = np.array(by_stack or [NONE], np.int32)[np.maximum(stack, 0)]
    source = np.where(stack != NONE, from_stack, from_name)
    return np.where(anchor == NONE, NONE, source).astype(np.int32), list(table)


def _line_of(stack: Iterable[str]) -> str:
    """The line of a recorded stack, innermost frame first."""
    frames = [frame_of(entry) for entry in stack]
    for origin in (Origin.USER, Origin.LIBRARY):
        for frame in frames:
            if frame.origin is origin:
                return frame.source
    return ""


def _modules(
    host: HostRows, parent: Rows, forward: Rows, names: list[str]
) -> tuple[Rows, list[str]]:
    """The path of modules around each row: "BertModel_0.BertEncoder_0.BertLayer_3"."""
    is_module = (host.kind == HostKind.PYTHON) & named(host, names, module_of)
    around = nearest(parent, is_module)
    table: dict[str, int] = {}
    path = np.full(len(parent) + 1, NONE, np.int32)
    paths: list[str] = []
    for row in np.flatnonzero(is_module).tolist():  # outer modules come first
        outer = path[around[parent[row]]] if parent[row] != NONE else NONE
        own = module_of(names[host.name[row]]) or ""
        text = f"{paths[outer]}.{own}" if outer != NONE else own
        path[row] = table.setdefault(text, len(table))
        if path[row] == len(paths):
            paths.append(text)
    module = path[_through_forward(around, parent, forward)]
    return module.astype(np.int32), paths
