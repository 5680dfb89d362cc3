"""Damaged profiles: each is diagnosed or refused with one line, in bounded time and memory.

`python benchmarks/mutated_traces.py cut FOLDER PIECES` cuts small pieces out of the profiles in a
folder (torch profiler and rocprofv3 JSON; Nsight Systems sqlite and XLA as they are).
`python benchmarks/mutated_traces.py PIECES COUNT [SEED]` damages them COUNT times and diagnoses
each. A failure is printed with its traceback, and its file is kept. Exit code 1 if any.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from boundby.analysis.comparison import compare
from boundby.capture import sources
from boundby.diagnosis import diagnose
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.report.csv_tables import csv_tables
from boundby.report.page import diagnosis_page
from boundby.report.perfetto import as_perfetto
from boundby.report.terminal import as_text

_PIECES = 4  # of each JSON profile
_EVENTS = (10, 100)  # of a piece
_LONGEST_S = 20  # of one diagnosis, on a core
_MOST_BYTES = 1 << 30
_SMALL_PROFILE = 1_200_000  # bytes of an XLA profile
_PRINTED_EVERY = 4  # the report is checked for one file in this many, files and comparisons
_WRITTEN_EVERY = 20  # for one in this many
_XLA_EVERY = 50  # profiles of XLA cannot be cut, and take longer
_ODD: list[Any] = [
    None, True, False, 0, -1, 1, -1e300, 1e300, 1e18, -5e15, 2**31, 2**63, -(2**63), 2**64, 2**200,
    0.5, math.nan, math.inf, -math.inf, "", "NaN", "-1", "1e400", "x" * 5000, "\x1b[31m\n",
    "\ud800",
    [], {}, [[]], [None], [[-1, 2]], [[2**62, 2**62]], {"a": 1}, ["float"], [[["a"]]],
]  # fmt: skip
_CELLS = [None, -1, 0, 2**62, -(2**62), 1.5, "text", b"\xff\x00", 1e300]


def pieces(path: Path, seed: int) -> list[Any]:
    """Small documents with consecutive events of a JSON profile."""
    chance = random.Random(seed)
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        document = json.loads(raw, strict=False)
    except ValueError:
        return []
    if isinstance(document, dict) and "rocprofiler-sdk-tool" in document:
        return [_piece_of_rocprof(document, chance) for _ in range(_PIECES)]
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        return []
    events = [one for one in document["traceEvents"] if isinstance(one, dict)]
    events = [one for one in events if one.get("ph") == "X" and _is_number(one.get("ts"))]
    events.sort(key=lambda one: float(one["ts"]))
    rest = {key: value for key, value in document.items() if key != "traceEvents"}
    found = []
    for _ in range(_PIECES if events else 0):
        count = chance.randint(*_EVENTS)
        first = chance.randrange(max(1, len(events) - count))
        chosen = events[first : first + count]
        marks = [one for one in events if str(one.get("name")).startswith("ProfilerStep")]
        found.append({**rest, "traceEvents": [*marks[:3], *chosen]})
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _piece_of_rocprof(document: dict[str, Any], chance: random.Random) -> Any:
    process = dict(document["rocprofiler-sdk-tool"][0])
    records = process["buffer_records"]
    dispatches = records["kernel_dispatch"]
    count = chance.randint(*_EVENTS) // 2
    first = chance.randrange(max(1, len(dispatches) - count))
    chosen = dispatches[first : first + count]
    numbers = {one["correlation_id"]["internal"] for one in chosen}
    kept: dict[str, Any] = {"kernel_dispatch": chosen}
    for name in ("hip_api", "marker_api", "memory_copy"):
        of_these = [
            one for one in records.get(name, []) if one["correlation_id"]["internal"] in numbers
        ]
        kept[name] = of_these or records.get(name, [])[:20]
    used = {one["dispatch_info"]["kernel_id"] for one in chosen}
    symbols = [one for one in process["kernel_symbols"] if one["kernel_id"] in used]
    wanted = ("metadata", "agents", "strings")
    small = {name: process[name] for name in wanted if name in process}
    return {"rocprofiler-sdk-tool": [{**small, "kernel_symbols": symbols, "buffer_records": kept}]}


def damaged_json(piece: bytes, chance: random.Random) -> bytes:
    """The document with some values replaced, removed or repeated, as bytes that may be damaged."""
    document = json.loads(piece)
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5, 8, 30))):
        _damage(document, chance)
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if isinstance(events, list) and chance.random() < 0.3:
        _damage_all(events, chance)
    raw = json.dumps(document).encode()
    return _damaged_bytes(raw, chance) if chance.random() < 0.25 else raw


def _damage(document: Any, chance: random.Random) -> None:
    """Change one value, at any depth."""
    node = document
    for _ in range(chance.randint(1, 8)):
        if not isinstance(node, dict | list) or not node:
            return
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        if isinstance(node[key], dict | list) and node[key] and chance.random() < 0.85:
            node = node[key]
            continue
        how = chance.random()
        if how < 0.6:
            node[key] = copy.deepcopy(chance.choice(_ODD))
        elif how < 0.8:
            del node[key]
        elif isinstance(node, list):
            node.insert(chance.randrange(len(node)), copy.deepcopy(node[key]))
        else:
            node[str(chance.choice(list(node)))] = copy.deepcopy(node[key])
        return


def _damage_all(events: list[Any], chance: random.Random) -> None:
    """Change one field of all events, or of those of one category."""
    category = chance.choice([one.get("cat") for one in events if isinstance(one, dict)] or [None])
    field = chance.choice(
        ("ts", "dur", "cat", "name", "tid", "pid", "args", "correlation", "stream")
    )
    how, odd = chance.random(), chance.choice(_ODD)
    for event in events:
        if not isinstance(event, dict) or (chance.random() < 0.5 and event.get("cat") != category):
            continue
        place = event if field in event else event.get("args")
        if not isinstance(place, dict) or field not in place:
            continue
        if how < 0.3:
            del place[field]
        elif how < 0.5 and _is_number(place[field]):
            place[field] = place[field] * chance.choice((-1, 0, 1e-6, 1e6))
        else:
            place[field] = odd


def _damaged_bytes(raw: bytes, chance: random.Random) -> bytes:
    data = bytearray(raw)
    if chance.random() < 0.5:
        del data[chance.randrange(len(data) + 1) :]
    for _ in range(chance.choice((0, 1, 1, 4, 30))):
        if data:
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 1, 8))] = chance.randbytes(chance.choice((0, 1, 4)))
    return bytes(data)


def damaged_sqlite(source: Path, target: Path, chance: random.Random) -> None:
    """A copy of a database with odd cells, without columns, tables or rows, or with other bytes."""
    shutil.copyfile(source, target)
    file = sqlite3.connect(target)
    tables = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = [name for name in tables if file.execute(f'SELECT 1 FROM "{name}"').fetchone()]
    for _ in range(chance.choice((0, 1, 2, 5, 20))):
        if not tables:
            break
        table = chance.choice(tables)
        columns = [row[1] for row in file.execute(f'PRAGMA table_info("{table}")')]
        if not columns:
            continue
        column, how = chance.choice(columns), chance.random()
        try:
            if how < 0.6:
                where = "" if chance.random() < 0.3 else "WHERE random() % 3 = 0"
                odd = chance.choice(_CELLS)
                file.execute(f'UPDATE "{table}" SET "{column}" = ? {where}', (odd,))
            elif how < 0.75:
                file.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other_{column}')
            elif how < 0.9:
                file.execute(f'DELETE FROM "{table}" WHERE random() % 2 = 0')
            else:
                file.execute(f'DROP TABLE "{table}"')
                tables.remove(table)
        except sqlite3.Error:
            continue
    file.commit()
    file.close()
    if chance.random() < 0.3:
        target.write_bytes(_damaged_bytes(target.read_bytes(), chance))


def packed(path: Path, chance: random.Random) -> Path:
    """The file as it is, or in an archive, which may be cut."""
    how = chance.random()
    if how > 0.15:
        return path
    raw = path.read_bytes()
    target = path.with_suffix(".gz" if how < 0.1 else ".zip")
    if how < 0.1:
        target.write_bytes(gzip.compress(raw, 1))
    else:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("trace.json", raw)
    if chance.random() < 0.3:
        target.write_bytes(_damaged_bytes(target.read_bytes(), chance))
    return target


def check(path: Path, *, number: int) -> tuple[str, Diagnosis | None]:
    """ "refused" or "diagnosed"; raises for anything else."""
    found = None
    try:
        for observation in sources.observe(path):
            found = diagnose(observation)
            total = sum(group.ns for group in found.account.groups().values())
            assert math.isfinite(found.step.wall_ns), found.step.wall_ns
            assert abs(total - found.step.wall_ns) <= 1.0 + 1e-9 * abs(found.step.wall_ns), (
                total,
                found.step.wall_ns,
            )
            if number % _PRINTED_EVERY == 0:
                assert all(line.isprintable() for line in as_text(found).splitlines())
            saved = msgspec.json.encode(found)
            msgspec.json.decode(saved, type=Diagnosis)
            if b"NaN" in saved:
                json.loads(saved, parse_constant=_no_constant)
            assert not any(note.code in _OWN_FAILURES for note in found.notes), [
                note.detail or note.text for note in found.notes if note.code in _OWN_FAILURES
            ]
            if number % _WRITTEN_EVERY == 0:
                diagnosis_page(found)
                as_perfetto(found)
                csv_tables(found)
    except BoundbyError as error:
        assert str(error).isprintable(), str(error)
        return "refused", None
    return "diagnosed", found


_OWN_FAILURES = ("formula-failed", "fault-failed")


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} in the saved diagnosis")


def _too_slow(*_: Any) -> None:
    raise TimeoutError(f"longer than {_LONGEST_S} s")


Maker = Callable[[Path, random.Random], Path]


def makers(folder: Path) -> list[Maker]:
    """How to write a damaged file, one for each small profile but those of XLA."""
    paths = sorted(folder.iterdir())
    found = [_json_maker(path.read_bytes()) for path in paths if path.suffix == ".json"]
    others = [_sqlite_maker(path) for path in paths if path.suffix == ".sqlite"]
    return found + others * max(1, len(found) // (20 * max(1, len(others))))


def cut(folder: Path, target: Path) -> None:
    """Write small profiles: pieces of JSON, others as they are."""
    target.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if path.name.endswith((".json", ".json.gz")):
            for index, piece in enumerate(pieces(path, number)):
                (target / f"{number}-{index}.json").write_text(json.dumps(piece))
        elif path.suffix == ".sqlite":
            shutil.copyfile(path, target / f"{number}.sqlite")
        elif path.name.endswith((".xplane.pb", ".xplane.pb.gz")):
            raw = path.read_bytes()
            raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
            if len(raw) <= _SMALL_PROFILE:
                (target / f"{number}.xplane.pb").write_bytes(raw)


def _json_maker(piece: bytes) -> Maker:
    def make(folder: Path, chance: random.Random) -> Path:
        path = folder / "trace.json"
        path.write_bytes(damaged_json(piece, chance))
        return packed(path, chance)

    return make


def _sqlite_maker(source: Path) -> Maker:
    def make(folder: Path, chance: random.Random) -> Path:
        path = folder / "report.sqlite"
        damaged_sqlite(source, path, chance)
        return path

    return make


def xla_makers(folder: Path) -> list[Maker]:
    return [_bytes_maker(path.read_bytes()) for path in sorted(folder.glob("*.xplane.pb"))]


def _bytes_maker(raw: bytes) -> Maker:
    def make(folder: Path, chance: random.Random) -> Path:
        path = folder / "profile.xplane.pb"
        path.write_bytes(_damaged_bytes(raw, chance))
        return path

    return make


def main() -> int:
    if sys.argv[1] == "cut":
        cut(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    kept = Path(tempfile.mkdtemp(prefix="mutated-"))
    made, xla = makers(folder), xla_makers(folder)
    print(f"{len(made)} pieces, {len(xla)} XLA profiles; failures are kept in {kept}", flush=True)
    signal.signal(signal.SIGPROF, _too_slow)
    outcomes: Counter[str] = Counter()
    slowest, begun, last = 0.0, time.monotonic(), None
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as place:
        for number in range(count):
            chance = random.Random(seed * 10_000_000 + number)
            make = chance.choice(xla if xla and number % _XLA_EVERY == 0 else made)
            path = make(Path(place), chance)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, _LONGEST_S)
            try:
                outcome, found = check(path, number=number)
                if found is not None and last is not None and number % _WRITTEN_EVERY == 0:
                    compare(last, found, names=("A", "B"))
                last = found or last
            except Exception:  # noqa: BLE001 - what is looked for
                outcome = "failed"
                shutil.copyfile(path, kept / f"{seed}-{number}{path.suffix}")
                print(f"--- {number} ({path.name})\n{traceback.format_exc(limit=-6)}", flush=True)
            signal.setitimer(signal.ITIMER_PROF, 0)
            outcomes[outcome] += 1
            slowest = max(slowest, time.process_time() - start)
            if number % 1000 == 999:
                print(
                    f"{number + 1}: {dict(outcomes)}, {time.monotonic() - begun:.0f} s", flush=True
                )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{dict(outcomes)}; slowest {slowest:.1f} s, peak {peak / 1e6:.0f} MB")
    return int(outcomes["failed"] > 0 or peak > _MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
