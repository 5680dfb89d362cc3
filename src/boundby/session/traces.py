"""Jobs of many ranks: each rank's diagnosis, and the time that ranks wait for each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundby.capture import remote, sources
from boundby.diagnosis import Timer, diagnose
from boundby.model import DeviceKind, Machine, Note, Timeline, store
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError, NotATraceError
from boundby.model.observation import Observation
from boundby.model.observation_file import FILE_NAME
from boundby.model.rows import RankRow
from boundby.model.weights import ModelWeights
from boundby.session import saved
from boundby.session.captures import read_capture, with_capture

if TYPE_CHECKING:
    from concurrent.futures import Future

    from boundby.capture.torch.graph_replays import Recording


class Member(msgspec.Struct, kw_only=True):
    """One rank's file: its diagnosis and its collectives in order, or a problem."""

    path: str
    rank: int | None = None
    diagnosis: Diagnosis | None = None
    collectives: list[float] = []
    problem: str | None = None
    is_trace: bool = True


# Files named so are reported if no source reads them.
_JSON = (".json", ".json.gz")
_XLA = "*.xplane.pb*"
_SUFFIXES = (*_JSON, ".xplane.pb", ".xplane.pb.gz")


def _is_meant(path: Path) -> bool:
    """Whether a file in a folder is a trace, or is named like one. The trace beside a saved
    observation is not."""
    if not path.is_file() or store.is_saved(path):
        return False
    if (path.parent / FILE_NAME).exists():
        return path.name == FILE_NAME
    if path.name.endswith(_JSON) and any(path.parent.glob(_XLA)):
        return False  # XLA's profiler writes views of a profile beside it
    return path.name.endswith(_SUFFIXES) or sources.is_trace(path)


def find_traces(places: Sequence[str | Path]) -> list[Path]:
    """The trace files to read: files as given, URLs downloaded, folders searched."""
    paths: list[Path] = []
    for address in places:
        if remote.is_remote(str(address)):
            paths.append(remote.local_copy(str(address)))
            continue
        place = Path(address)
        try:
            paths += _files_at(place)
        except PermissionError as error:
            raise BoundbyError(f"{place}: cannot be read: {error.strerror}") from None
    return paths


def _files_at(place: Path) -> list[Path]:
    """A file, or the traces in a folder."""
    if not place.is_dir():
        return [place]
    next(place.iterdir(), None)  # `rglob` leaves out what cannot be read
    inside = sorted(path for path in place.rglob("*") if _is_meant(path))
    if not inside:
        raise BoundbyError(f"{place}: no trace files in this folder")
    return inside


def read_member(
    path: Path,
    machine: Machine | None,
    wall_ns: float | None,
    index: int | None,
    weights: ModelWeights | None = None,
    capture: Recording | None = None,
) -> list[Member]:
    """The ranks in a file, read and diagnosed; a broken file does not affect the others."""
    try:
        observations = sources.observe(path, index=index, wall_ns=wall_ns)
        if capture is not None:
            observations = [with_capture(observation, capture) for observation in observations]
        timer = None
        if machine is None and path.name in (FILE_NAME, saved.TRACE):
            machine, timer = saved.saved_machine(path), saved.saved_timer(path)
        names = _names(path, observations)
        return [
            _member(name, observation, machine, timer, weights)
            for name, observation in zip(names, observations, strict=True)
        ]
    except BoundbyError as error:
        is_trace = not isinstance(error, NotATraceError)
        return [Member(path=str(path), problem=str(error), is_trace=is_trace)]


def _names(path: Path, observations: Sequence[Observation]) -> list[str]:
    """A name for each observation of a file; those of an archive are its members' names."""
    if len(observations) == 1:
        return [str(path)]
    names = [observation.target or str(path) for observation in observations]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({number})" for number, name in enumerate(names)]


def _member(
    path: str,
    observation: Observation,
    machine: Machine | None,
    timer: Timer | None,
    weights: ModelWeights | None,
) -> Member:
    return Member(
        path=path,
        rank=None if observation.rank is None else observation.rank.rank,
        diagnosis=diagnose(observation, machine, timer=timer, weights=weights),
        collectives=_collective_times(observation.timeline),
    )


def read_members(
    paths: Sequence[Path],
    machine: Machine | None,
    *,
    wall_ns: float | None,
    index: int | None,
    progress: Callable[[str, float], None],
    weights: ModelWeights | None = None,
    capture: Recording | None = None,
) -> list[Member]:
    """All ranks, in as many processes as there are cores."""
    from concurrent.futures import ProcessPoolExecutor, as_completed

    members: dict[Path, list[Member]] = {}
    workers = min(len(paths), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers) as pool:
        waiting = {
            pool.submit(read_member, path, machine, wall_ns, index, weights, capture): path
            for path in paths
        }
        try:
            for done in as_completed(waiting):
                path = waiting[done]
                members[path] = _result(done, path)
                progress(path.name, len(members) / len(paths))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return [member for path in paths for member in members[path]]


def _result(done: Future[list[Member]], path: Path) -> list[Member]:
    """The result of a process; one that was killed (for memory, say) loses only its own file."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        return done.result()
    except BrokenProcessPool:
        problem = f"{path}: the process that read it was killed"
        return [Member(path=str(path), problem=problem)]


def combine(members: Sequence[Member]) -> Diagnosis:
    """The job: the slowest rank's diagnosis, with one row per rank."""
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
    capture: str | Path | None = None,
) -> Diagnosis:
    """The diagnosis of a trace file, or of all ranks in a folder of them; or a saved diagnosis.

    `capture` is a trace of the same model that shows the operators of its CUDA graphs. A saved
    diagnosis is read as it is: the other arguments are for traces.
    """
    if remote.is_remote(str(path)):
        path = remote.local_copy(str(path))
    if store.is_saved(Path(path)):
        return store.read(Path(path), Diagnosis, "diagnosis")
    paths = find_traces([path])
    return diagnose_traces(
        paths,
        machine,
        wall_ns=wall_ns,
        index=index,
        progress=lambda *_: None,
        capture=None if capture is None else Path(capture),
    )


def diagnose_traces(
    paths: Sequence[Path],
    machine: Machine | None,
    *,
    wall_ns: float | None,
    index: int | None,
    progress: Callable[[str, float], None],
    weights: ModelWeights | None = None,
    capture: Path | None = None,
) -> Diagnosis:
    """The diagnosis of the one rank in these files, or of the job whose ranks they are.

    `weights` are those of the model, for the limit of a decode step; `capture` is a trace that
    shows the operators of replayed graphs.
    """
    recording = None if capture is None else read_capture(capture)
    if len(paths) > 1:
        members = read_members(
            paths,
            machine,
            wall_ns=wall_ns,
            index=index,
            progress=progress,
            weights=weights,
            capture=recording,
        )
    else:
        members = read_member(paths[0], machine, wall_ns, index, weights, recording)
    traces = [member for member in members if member.is_trace] or members
    ranks = [member for member in traces if not _is_capture(member)] or traces
    if len(ranks) == 1 and ranks[0].diagnosis is not None:
        diagnosis = ranks[0].diagnosis
    else:
        diagnosis = combine(ranks)
    notes = list(diagnosis.notes)
    if captures := _names_of(member for member in traces if member not in ranks):
        text = f"captures of graphs, left out: {captures} (--capture FILE uses one)"
        notes.append(Note(code="other-files", text=text))
    if others := _names_of(member for member in members if member not in traces):
        notes.append(Note(code="other-files", text=f"not traces, left out: {others}"))
    return msgspec.structs.replace(diagnosis, notes=notes)


def _is_capture(member: Member) -> bool:
    """Whether a trace shows the capture of a graph, and no step that ran."""
    found = [] if member.diagnosis is None else member.diagnosis.notes
    return any(note.code == "graph-captured" for note in found)


def _names_of(members: Iterable[Member]) -> str:
    return ", ".join(Path(member.path).name for member in members)


def _collective_times(timeline: Timeline | None) -> list[float]:
    if timeline is None:
        return []
    device = timeline.device
    return [float(ns) for ns in device.duration_ns[device.kind == DeviceKind.COLLECTIVE]]


def _waiting(members: Sequence[Member]) -> dict[str, float]:
    """The time each rank spent in collectives waiting for later ranks.

    A collective ends for all ranks at once: on the last rank it takes as long as the transfer, on
    the others longer by the wait. Ranks' clocks differ, durations do not.
    """
    counts = {len(member.collectives) for member in members}
    if len(members) < 2 or len(counts) != 1 or counts == {0}:
        return {}
    shortest = [min(times) for times in zip(*(m.collectives for m in members), strict=True)]
    return {member.path: sum(member.collectives) - sum(shortest) for member in members}


def _slowest(members: Sequence[Member], waits: dict[str, float]) -> Member:
    """The rank the others wait for; without collectives, the one with the longest step."""
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
