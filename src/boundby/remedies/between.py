"""The script's own Python, between the model and the operators: it may grow with the batch, and it
may not belong into the step at all."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from boundby.account.nesting import Mask, nearest
from boundby.account.whereabouts import main_thread, whereabouts
from boundby.intervals import Coverage, union
from boundby.model import HostKind, Ints, Phase, Timeline
from boundby.picture import Floats, Picture
from boundby.remedies.sample_loops import asking_ns, sample_loops
from boundby.replay import Script

# Python whose time does not depend on how many samples there are. torch's making of batches does.
_MODULE = "nn.Module: "
_FLAT_PYTHON = re.compile(
    r"^nn\.Module: |(?:^|/)torch/(?!utils/data)|(?:^|/)boundby/capture/"
    r"|^<built-in function collect>$"
)
_FLAT_RANGE = "Optimizer."
# From one operator to the next, Python takes a few times what an operator does. What takes longer
# is something that the script does itself.
_OPERATORS_LONG = 20
# A function that is called this often within such a stretch is called in a loop.
_LOOP = 16
# So many calls of one module that nothing is differentiated through, in a training step, are a
# rollout or an evaluation.
_MANY_CALLS = 8
_READ = ("aten::item", "aten::_local_scalar_dense")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Time of the profiled step in which nothing ran but the script's own Python."""

    start_ns: int
    end_ns: int
    loops: bool
    loads: bool = False  # inside a loader, which makes its samples one by one

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


def stretches(picture: Picture) -> list[Stretch]:
    """Where the script is at work itself, in order of time."""
    host = picture.timeline.host
    least = _OPERATORS_LONG * (picture.machine.overheads.eager_op_ns or 0.0)
    starts, stops = _between(picture.timeline)
    python = np.flatnonzero(host.kind == HostKind.PYTHON)
    loads = np.flatnonzero(host.kind == HostKind.DATA)
    found = []
    for at in np.flatnonzero(stops - starts > least):
        start, end = int(starts[at]), int(stops[at])
        inside = python[(host.start_ns[python] >= start) & (host.start_ns[python] < end)]
        most = np.bincount(host.name[inside]).max() if len(inside) else 0
        # However few calls that takes.
        around = host.start_ns[loads] <= start
        loaded = bool((around & (host.start_ns[loads] + host.duration_ns[loads] >= end)).any())
        loops = loaded or bool(most >= _LOOP)
        found.append(Stretch(start_ns=start, end_ns=end, loops=loops, loads=loaded))
    return found


def _between(timeline: Timeline) -> tuple[Ints, Ints]:
    """Where nothing of the model's or of torch's ran: all beginnings, all ends."""
    host, flat = timeline.host, _is_flat(timeline)
    begins, ends = union(host.start_ns[flat], host.duration_ns[flat])
    starts = np.concatenate([[timeline.start_ns], ends])
    stops = np.concatenate([begins, [timeline.end_ns]])
    return starts, np.maximum(starts, stops)


def _is_flat(timeline: Timeline) -> Mask:
    host, names = timeline.host, timeline.names
    python = np.array([bool(_FLAT_PYTHON.search(name)) for name in names] or [False])
    marked = np.array([name.startswith(_FLAT_RANGE) for name in names] or [False])
    # What is around the whole step says nothing of it.
    ends = host.start_ns + host.duration_ns
    partial = (host.start_ns > timeline.start_ns) | (ends < timeline.end_ns)
    runs = np.isin(host.kind, (HostKind.OP, HostKind.LAUNCH, HostKind.SYNC, HostKind.RUNTIME))
    named = ((host.kind == HostKind.PYTHON) & python[host.name]) | (
        (host.kind == HostKind.ANNOTATION) & marked[host.name]
    )
    flat: Mask = runs | (named & partial)
    return flat


def growing_ns(picture: Picture, *, growth: float | None) -> tuple[Floats, float]:
    """Clean host time before each action, and behind the last, that is in proportion to the batch.

    `growth` is the share of the script's own time that is; None: what is likely, all of what a
    loop takes and half of the rest. On a CPU all of it is behind the last, and waiting for batches,
    which are made of samples, grows in any case.
    """
    timeline, host = picture.timeline, picture.timeline.host
    found = stretches(picture)
    weight = [(1.0 if one.loops else 0.5) if growth is None else growth for one in found]
    if picture.script is None:
        worked = host.kind == HostKind.OP
        begins, ends = union(host.start_ns[worked], host.duration_ns[worked])
        loaded = sum(one.ns for one in found if one.loads)
        profiled = max(1.0, timeline.wall_ns - float((ends - begins).sum()) - loaded)
        eager = picture.machine.overheads.eager_op_ns or 0.0
        operators = sum(picture.contended * work.exposed_ns + eager for work in picture.works)
        waited = _for_samples(picture)
        clean = max(0.0, picture.wall_ns - operators - waited)
        own = sum(one.ns * part for one, part in zip(found, weight, strict=True) if not one.loads)
        python_ns = clean * min(1.0, own / profiled) + asking_ns(picture, sample_loops(picture))
        return np.empty(0), min(picture.wall_ns, waited + python_ns)
    own_ns, since = _in_stretches(picture.script, timeline, found, weight)
    shares = np.minimum(1.0, own_ns / since)
    looped = [index for loop in sample_loops(picture) for index in loop.works]
    shares[picture.actions_of(looped)] = 1.0
    return picture.script.host_ns * shares[:-1], picture.script.after_ns * float(shares[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """Before each action and behind the last; on a CPU all of it is behind the last."""

    before_ns: Floats
    after_ns: float

    @property
    def ns(self) -> float:
        return float(self.before_ns.sum()) + self.after_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The script's own Python in the clean step: what it likely takes, and at most, if the profiler
    made none of it longer; by line, what it took in the profiled one."""

    likely: HostTime
    most: HostTime
    lines: dict[str, float]


def own_python(picture: Picture) -> Own:
    """All of it but what makes a loader's batches."""
    found = [one for one in stretches(picture) if not one.loads]
    lines, shares = _lines(picture.timeline, found)
    if picture.script is None:
        python = {row.where: row.parts.get("python", 0.0) for row in picture.line_rows}
        own = sum(python.get(line, 0.0) * share for line, share in shares.items())
        most = min(sum(python.values()), max(own, sum(lines.values())))
        likely, most = picture.contended * own, picture.contended * most
        nothing = np.empty(0)
        return Own(
            likely=HostTime(before_ns=nothing, after_ns=likely),
            most=HostTime(before_ns=nothing, after_ns=most),
            lines=lines,
        )
    script = picture.script
    profiled, since = _in_stretches(script, picture.timeline, found, [1.0] * len(found))
    part = np.minimum(1.0, profiled / since)
    clean = np.append(script.host_ns, script.after_ns)
    most_ns = np.minimum(clean, np.maximum(profiled, part * clean))
    return Own(
        likely=HostTime(before_ns=(part * clean)[:-1], after_ns=float((part * clean)[-1])),
        most=HostTime(before_ns=most_ns[:-1], after_ns=float(most_ns[-1])),
        lines=lines,
    )


def _in_stretches(
    script: Script, timeline: Timeline, found: list[Stretch], weight: list[float]
) -> tuple[Floats, Floats]:
    """Profiled time before each action, and behind the last: what lies in some stretches, and all
    of it."""
    host, rows = timeline.host, script.rows
    if not len(rows):
        return np.zeros(len(script.host_ns) + 1), np.ones(len(script.host_ns) + 1)
    done = host.start_ns[rows] + host.duration_ns[rows]
    since = np.concatenate([[timeline.start_ns], done])
    until = np.concatenate([done, [timeline.end_ns]])
    own_ns = np.zeros(len(since))
    for one, part in zip(found, weight, strict=True):
        shared = np.minimum(until, one.end_ns) - np.maximum(since, one.start_ns)
        own_ns += part * np.clip(shared, 0, None)
    return own_ns, np.maximum(until - since, 1).astype(np.float64)


def _lines(timeline: Timeline, found: list[Stretch]) -> tuple[dict[str, float], dict[str, float]]:
    """By line, profiled time in these stretches, and its share of all that passed there between the
    model and the operators."""
    where = whereabouts(timeline)
    own = where.on(main_thread(timeline))
    begins, ends, source = where.start_ns[own], where.end_ns[own], where.source[own]
    starts, stops = _between(timeline)
    within = Coverage(
        np.array([one.start_ns for one in found], np.int64),
        np.array([one.ns for one in found], np.int64),
    ).between(begins, ends)
    around = Coverage(starts, stops - starts).between(begins, ends)
    at, all_of = np.zeros(len(timeline.sources)), np.zeros(len(timeline.sources))
    known = source >= 0
    np.add.at(at, source[known], within[known])
    np.add.at(all_of, source[known], around[known])
    rows = np.flatnonzero(at > 0)
    return (
        {timeline.sources[row]: float(at[row]) for row in rows},
        {timeline.sources[row]: float(at[row] / all_of[row]) for row in rows},
    )


def _for_samples(picture: Picture) -> float:
    """Of a CPU's step, what passes for batches to be made, here or by processes of its own, which
    may have taken its core for that."""
    seen, data = picture.circumstances, picture.account.overhead.parts.get("data", 0.0)
    asleep = min(data, picture.wall_ns * seen.asleep_share)
    return picture.contended * (data - asleep) + asleep + picture.wall_ns * seen.lent_share


def rolls_out(picture: Picture) -> bool:
    """Whether a training step calls a model many times for the samples that it trains on.

    With nothing to differentiate; or all before one backward, and each read by the script before
    the next, as actions are. More samples are more calls then.
    """
    timeline, host = picture.timeline, picture.timeline.host
    forward = np.unique(host.forward[host.forward >= 0])
    named = np.array([name.startswith(_MODULE) for name in timeline.names] or [False])
    module = (host.kind == HostKind.PYTHON) & named[host.name]
    if not len(forward) or not module.any():
        return False
    around = nearest(host.parent, module)
    outermost = module & ((host.parent < 0) | (around[host.parent] < 0))
    trained = nearest(host.parent, outermost)[forward]
    evaluated = outermost.copy()
    evaluated[trained[trained >= 0]] = False
    if evaluated.any() and np.bincount(host.name[evaluated]).max() >= _MANY_CALLS:
        return True
    return _acts(timeline, np.flatnonzero(outermost))


def _acts(timeline: Timeline, calls: Ints) -> bool:
    """Whether the script reads a value after most of these calls, with no backward in between."""
    host = timeline.host
    read = np.array([name in _READ for name in timeline.names] or [False])[host.name]
    reads = np.sort(host.start_ns[read])
    backward = np.sort(host.start_ns[host.phase == Phase.BACKWARD])
    starts = np.sort(host.start_ns[calls])
    between = np.diff(np.searchsorted(reads, starts)) > 0
    between &= np.diff(np.searchsorted(backward, starts)) == 0
    return int(between.sum()) >= _MANY_CALLS
