"""Ordinary scripts with planted mistakes: does `boundby run` find each, and what does it save?

    python benchmarks/planted.py                       # everything: the table of docs/figures
    python benchmarks/planted.py gan small_gpt:mask    # some scripts, or single mistakes
    python benchmarks/planted.py jax/gpt jax/rl:act    # of JAX: these need flax, optax, equinox
    python benchmarks/planted.py --table ROWS.jsonl    # the table of results kept with --keep

The scripts are in `benchmarks/planted/`. In each, a line that ends in `#- NAME` belongs to the
mistake NAME, and a line `#+ NAME: code` is its repair (`#+ A|B: code` that of either); `#: NAME`
ends a line that stays, and that a finding may name as well (`#: A+B` for two mistakes). `# mistake
NAME: fault, ...` names the faults that count as found;
`# memory NAME: fault, ...` is a mistake that costs memory: no saving is expected of its finding,
and what the process grows by in a step is measured instead. A mistake is tried with all others
repaired. It counts as found if one of the first three findings has such a fault, names a line of
the mistake and expects at least half of what the repair saves, which is measured: both versions
take their steps in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boundby.model.run import ONCE

SCRIPTS = Path(__file__).parent / "planted"
TURNS, TURN_S, WARM = 7, 0.3, 8
COSTS = 0.04  # mistakes of this share of the step or more count towards recall
FALSE = 0.05  # a clean script's finding of more than this is a false one
FIRST = 3
MACHINE: list[str] = []  # the options that name saved roofs
CLOCK = ["perf_counter"]  # of `time`, for the true savings
OBSERVED: list[Path] = []  # the folder that keeps the observation of each version, if any
_MISTAKE = re.compile(r"^# (mistake|memory) (\w+): (.+)$", re.MULTILINE)
_WRONG = re.compile(r"^(.*?)\s*#- (\w+)$")
_BESIDE = re.compile(r"^(.*?)\s*#: ([\w+]+)$")
_RIGHT = re.compile(r"^(\s*)#\+ ([\w|]+): (.*?)(?:\s*#: ([\w+]+))?$")
_END = "# end of step"

# Runs a version of a script: so many steps a turn, then waits to be told to go on. Each time it
# says how long that took, and how much memory the process has.
_DRIVER = """
import resource, sys, time
out, sys.stdout = sys.stdout, sys.stderr
left, began = 8, time.perf_counter()
def __tick__():
    global left, began
    left -= 1
    if left: return
    if "jax" in sys.modules:
        for array in sys.modules["jax"].live_arrays():
            if not array.is_deleted(): array.block_until_ready()
    size = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    print(time.perf_counter() - began, size, file=out, flush=True)
    left = int(sys.stdin.readline())
    began = time.perf_counter()
name = sys.argv.pop()
exec(compile(open(name).read(), name, "exec"), {"__name__": "__main__", "__tick__": __tick__})
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A script with some mistakes repaired; `lines`: where each of the others is."""

    text: str
    lines: dict[str, list[int]]


@dataclasses.dataclass(kw_only=True)
class Row:
    """What became of one mistake, or of a script without any (`mistake` empty)."""

    script: str
    mistake: str
    true: float = 0.0
    grown: float | None = None  # bytes a step, of a mistake that costs memory
    found: bool = False
    fault: str = ""
    predicted: float | None = None
    first: str = ""
    seen: list[tuple[str, float, list[str], str]] = dataclasses.field(default_factory=list)
    problem: str = ""


def mistakes_of(script: Path) -> dict[str, list[str]]:
    """The mistakes of a script, each with the faults that it may be found as."""
    return {
        name: [one.strip() for one in faults.split(",")]
        for _, name, faults in _MISTAKE.findall(script.read_text())
    }


def costs_memory(script: Path, mistake: str) -> bool:
    return ("memory", mistake) in (found[:2] for found in _MISTAKE.findall(script.read_text()))


def version(script: Path, wrong: set[str]) -> Version:
    """The script with only these mistakes in it."""
    lines: list[str] = []
    places: dict[str, list[int]] = {}
    for line in script.read_text().splitlines():
        if repair := _RIGHT.match(line):
            if wrong.isdisjoint(repair[2].split("|")):
                lines.append(repair[1] + repair[3])
                for name in repair[4].split("+") if repair[4] else ():
                    places.setdefault(name, []).append(len(lines))
        elif planted := _WRONG.match(line):
            if planted[2] in wrong:
                lines.append(planted[1])
                places.setdefault(planted[2], []).append(len(lines))
        elif beside := _BESIDE.match(line):
            lines.append(beside[1])
            for name in beside[2].split("+"):
                places.setdefault(name, []).append(len(lines))
        elif not _MISTAKE.match(line):
            lines.append(line)
    return Version(text="\n".join(lines) + "\n", lines=places)


class Turns:
    """A running version, which takes some steps on request."""

    def __init__(self, folder: Path, name: str, text: str) -> None:
        script = folder / f"{name}_timed.py"
        script.write_text(text.replace(_END, "__tick__()"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER.replace("perf_counter", CLOCK[0]), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.bytes = 0
        self.warm_s = self._read()

    def take(self, steps: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._read() / steps

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the script ended or failed while it was timed")
        seconds, size = line.split()
        self.bytes = int(size)
        return float(seconds)


def measure(row: Row, folder: Path, mistaken: str, repaired: str) -> None:
    """The share of the mistaken step that the repair saves, measured in turn, and its growth."""
    versions = []
    try:
        versions = [Turns(folder, "mistaken", mistaken), Turns(folder, "repaired", repaired)]
        steps = [max(2, round(TURN_S / (one.take(4) + 1e-9))) for one in versions]
        steps = [min(count, 40) for count in steps]
        shares = []
        at_first = [one.bytes for one in versions]
        for _ in range(TURNS):
            before, after = (one.take(n) for one, n in zip(versions, steps, strict=True))
            shares.append(1 - after / before)
        row.true = statistics.median(shares)
        grown, other = (
            (one.bytes - first) / (TURNS * count)
            for one, first, count in zip(versions, at_first, steps, strict=True)
        )
        if row.grown is not None:
            row.true, row.grown = 0.0, grown - other
    finally:
        for one in versions:
            one.end()


def diagnosis_of(folder: Path, name: str, mistake: str, text: str) -> dict[str, Any]:
    """What `boundby run` says of a version."""
    script, result = folder / f"{name}.py", folder / "diagnosis.json"
    options = [*MACHINE, *(f"--out={place / name / (mistake or 'repaired')}" for place in OBSERVED)]
    script.write_text(text)
    result.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "boundby", "run", *options, "--json", str(result), str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    if not result.exists():
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no diagnosis")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def judge(row: Row, diagnosis: dict[str, Any], accepted: list[str], lines: list[int]) -> None:
    """Whether the mistake is among the first findings."""
    findings = diagnosis["findings"]
    row.seen = [
        (one["fault"], share_of(one, diagnosis), one.get("where", []), one["kind"])
        for one in findings[:6]
    ]
    row.first = row.seen[0][0] if row.seen else ""
    for finding, (fault, share, where, _) in zip(findings[:FIRST], row.seen, strict=False):
        named = {fault, *finding.get("also", [])}
        at = any(int(place.rpartition(":")[2]) in lines for place in where if ":" in place)
        if at and named.intersection(accepted):
            row.fault, row.predicted = fault, share
            row.found = share >= row.true / 2
            return


def share_of(finding: dict[str, Any], diagnosis: dict[str, Any]) -> float:
    """The expected saving as a share of the step, or of what the run does as long as it runs."""
    run = diagnosis.get("run")
    if finding.get("relative_to") != "run" or not run:
        return float(finding["saving_ns"]["expected"] / diagnosis["step"]["wall_ns"])
    recurring = sum(part["ns"] for part in run["parts"] if part["name"] not in ONCE)
    return float(finding["saving_ns"]["expected"] / recurring)


def rows_of(script: Path, only: str, timed: bool) -> Iterator[Row]:
    mistakes = mistakes_of(script)
    clean = version(script, set())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for mistake, accepted in mistakes.items():
            if only and mistake != only:
                continue
            row = Row(script=script.stem, mistake=mistake)
            planted = version(script, {mistake})
            try:
                row.grown = 0.0 if costs_memory(script, mistake) else None
                if timed:
                    measure(row, folder, planted.text, clean.text)
                diagnosis = diagnosis_of(folder, script.stem, mistake, planted.text)
                judge(row, diagnosis, accepted, planted.lines[mistake])
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                row.problem = str(error)
            yield row
        if not only:
            row = Row(script=script.stem, mistake="")
            try:
                judge(row, diagnosis_of(folder, script.stem, "", clean.text), [], [])
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                row.problem = str(error)
            yield row


def table(rows: list[Row]) -> Iterator[str]:
    """One row per mistake, and the totals."""
    yield "| script | mistake | true | predicted | found as | first finding |"
    yield "|---|---|---|---|---|---|"
    planted = [row for row in rows if row.mistake]
    for row in planted:
        predicted = "-" if row.predicted is None else f"{row.predicted:.0%}"
        found = row.problem or (row.fault if row.found else "not found")
        true = f"{row.true:.0%}" if row.grown is None else f"{row.grown / 1e3:.0f} kB a step"
        line = [row.script, row.mistake, true, predicted, found, row.first]
        yield f"| {' | '.join(line)} |"
    costly = [row for row in planted if row.true >= COSTS]
    hits = [row for row in costly if row.found]
    yield ""
    yield f"Mistakes of {COSTS:.0%} or more: {len(costly)}, found: {len(hits)}" + (
        f" ({len(hits) / len(costly):.0%})." if costly else "."
    )
    errors = [abs((row.predicted or 0) / row.true - 1) for row in hits]
    if errors:
        yield f"Median error of the predicted saving: {statistics.median(errors):.0%}."


def false_findings(rows: list[Row]) -> Iterator[str]:
    """Mistakes that are reported in scripts that have none."""
    clean = [row for row in rows if not row.mistake]
    wrong = [
        f"{row.script}: {fault} {share:.0%}"
        for row in clean
        for fault, share, _, kind in row.seen
        if share > FALSE and kind == "mistake"
    ]
    yield f"False findings above {FALSE:.0%} in {len(clean)} scripts without mistakes: {len(wrong)}"
    yield from (f"- {line}" for line in wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="SCRIPT[:MISTAKE]")
    parser.add_argument("--keep", type=Path, help="add each result to this file as it comes")
    parser.add_argument("--table", type=Path, help="print the table of results kept before")
    parser.add_argument("--untimed", action="store_true", help="do not measure the true savings")
    parser.add_argument("--machine", type=Path, help="roofs saved with `boundby machine --json`")
    parser.add_argument(
        "--cpu-time", action="store_true", help="of both versions: on a busy machine"
    )
    parser.add_argument("--observations", type=Path, help="keep what was observed of each version")
    given = parser.parse_args()
    MACHINE[:] = ["--machine", str(given.machine.absolute())] if given.machine else []
    CLOCK[:] = ["process_time"] if given.cpu_time else CLOCK
    OBSERVED[:] = [given.observations.absolute()] if given.observations else []
    if given.table:
        kept = [json.loads(line) for line in given.table.read_text().splitlines()]
        rows = [
            Row(**one) for one in {(one["script"], one["mistake"]): one for one in kept}.values()
        ]
    else:
        rows = []
        wanted = given.names or sorted(script.stem for script in SCRIPTS.glob("*.py"))
        for script, _, mistake in (name.partition(":") for name in wanted):
            for row in rows_of(SCRIPTS / f"{script}.py", mistake, not given.untimed):
                rows.append(row)
                top = ", ".join(f"{f} {s:.0%} {w[:2]}" for f, s, w, _ in row.seen[:FIRST])
                verdict = row.problem or ("found" if row.found else "MISSED" if row.mistake else "")
                print(f"{script}:{row.mistake} true {row.true:.0%} {verdict} | {top}", flush=True)
                if given.keep:
                    with given.keep.open("a") as file:
                        file.write(json.dumps(dataclasses.asdict(row)) + "\n")
    print("\n".join(table(rows)))
    print("\n".join(false_findings(rows)))


if __name__ == "__main__":
    main()
