"""A job of many ranks: each rank's diagnosis, and what the ranks cost each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import msgspec

from boundby.capture import kineto
from boundby.diagnosis import diagnose_trace
from boundby.model import DeviceKind, Machine, Note, Timeline, store
from boundby.model.diagnosis import Diagnosis, RankRow
from boundby.model.errors import BoundbyError

_SUFFIXES = (".json", ".json.gz")


class Member(msgspec.Struct, kw_only=True):
    """What one rank's file gave: its diagnosis and its collectives in order, or a problem."""

    path: str
    rank: int | None = None
    diagnosis: Diagnosis | None = None
    collectives: list[float] = []
    problem: str | None = None


def find_traces(places: Sequence[Path]) -> list[Path]:
    """The trace files meant: files as given, folders searched."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(p for p in place.rglob("*") if p.name.endswith(_SUFFIXES))
            if not inside:
                raise BoundbyError(f"{place}: no trace files (*.json, *.json.gz) in this folder")
            found += inside
        else:
            found.append(place)
    return found


def read_member(
    path: Path, machine: Machine | None, wall_ns: float | None, index: int | None
) -> Member:
    """One rank's file, read and diagnosed; a broken one does not lose the others."""
    try:
        trace = kineto.read(path)
        diagnosis = diagnose_trace(trace, machine, wall_ns=wall_ns, index=index)
    except BoundbyError as error:
        return Member(path=str(path), problem=str(error))
    timeline = trace.timeline(index)
    return Member(
        path=str(path),
        rank=trace.metadata.rank,
        diagnosis=diagnosis,
        collectives=_collective_times(timeline),
    )


def read_members(
    paths: Sequence[Path],
    machine: Machine | None,
    *,
    wall_ns: float | None,
    index: int | None,
    progress: Callable[[str, float], None],
) -> list[Member]:
    """All ranks, in as many processes as there are cores."""
    members: dict[Path, Member] = {}
    workers = min(len(paths), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers) as pool:
        waiting = {pool.submit(read_member, path, machine, wall_ns, index): path for path in paths}
        try:
            for done in as_completed(waiting):
                path = waiting[done]
                members[path] = _result(done, path)
                progress(path.name, len(members) / len(paths))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return [members[path] for path in paths]


def _result(done: Future[Member], path: Path) -> Member:
    """What a process brought back; one that was killed (for memory, say) loses only its file."""
    try:
        return done.result()
    except BrokenProcessPool:
        return Member(path=str(path), problem=f"{path}: the process that read it was killed")


def combine(members: Sequence[Member]) -> Diagnosis:
    """The job: the slowest rank's diagnosis, with one row for each rank."""
    sound = [member for member in members if member.diagnosis is not None]
    if not sound:
        raise BoundbyError(members[0].problem or "no rank could be read")
    waits = _waiting(sound)
    rows = [
        _row(member, position, waits.get(member.path)) for position, member in enumerate(members)
    ]
    slowest = _slowest(sound, waits)
    diagnosis = slowest.diagnosis
    assert diagnosis is not None
    notes = list(diagnosis.notes)
    problems = (member.problem for member in members if member.problem)
    notes += [Note(code="rank-unreadable", text=problem) for problem in problems]
    if not waits and len(sound) > 1:
        text = "the ranks do not show the same collectives: which rank waits for which is unknown"
        notes.append(Note(code="collectives-differ", text=text))
    return msgspec.structs.replace(diagnosis, ranks=rows, notes=notes)


def load(
    path: str | Path,
    *,
    machine: Machine | None = None,
    wall_ns: float | None = None,
    index: int | None = None,
) -> Diagnosis:
    """The diagnosis of a trace file, or of all ranks in a folder of them; or a saved diagnosis.

    A saved one is read as it is: `machine`, `wall_ns` and `index` are for traces.
    """
    if store.is_saved(Path(path)):
        return store.read(Path(path), Diagnosis, "diagnosis")
    paths = find_traces([Path(path)])
    if len(paths) == 1:
        return diagnose_trace(kineto.read(paths[0]), machine, wall_ns=wall_ns, index=index)
    members = read_members(paths, machine, wall_ns=wall_ns, index=index, progress=lambda *_: None)
    return combine(members)


def _collective_times(timeline: Timeline) -> list[float]:
    device = timeline.device
    return [float(ns) for ns in device.duration_ns[device.kind == DeviceKind.COLLECTIVE]]


def _waiting(members: Sequence[Member]) -> dict[str, float]:
    """Time each rank spent in collectives waiting for later ranks.

    A collective ends for all at once: on the rank that comes last it takes as long as the
    transfer, on the others longer by the wait. Ranks' clocks differ, durations do not.
    """
    counts = {len(member.collectives) for member in members}
    if len(members) < 2 or len(counts) != 1 or counts == {0}:
        return {}
    shortest = [min(times) for times in zip(*(m.collectives for m in members), strict=True)]
    return {member.path: sum(member.collectives) - sum(shortest) for member in members}


def _slowest(members: Sequence[Member], waits: dict[str, float]) -> Member:
    """The rank the others wait for; without collectives to tell, the one with the longest step."""
    if waits:
        return min(members, key=lambda member: waits[member.path])
    return max(members, key=lambda m: m.diagnosis.step.wall_ns if m.diagnosis else 0.0)


def _row(member: Member, position: int, waiting_ns: float | None) -> RankRow:
    rank = member.rank if member.rank is not None else position
    name = Path(member.path).name
    if member.diagnosis is None:
        return RankRow(rank=rank, name=name, wall_ns=0.0, problem=member.problem)
    diagnosis = member.diagnosis
    return RankRow(
        rank=rank,
        name=name,
        wall_ns=diagnosis.step.wall_ns,
        device_busy_ns=diagnosis.step.device_busy_ns,
        groups={group: value.share for group, value in diagnosis.account.groups().items()},
        communication_ns=sum(row.ns for row in diagnosis.collectives),
        exposed_ns=sum(row.exposed_ns for row in diagnosis.collectives),
        waiting_ns=waiting_ns,
    )
