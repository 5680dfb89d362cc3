"""Public programs alone and under `boundby run`: nothing broken, nothing changed, the right step.

    python benchmarks/programs.py run --checkouts DIR [--python PYTHON] [NAME ...]
    python benchmarks/programs.py table

`DIR` holds a checkout of each repository at the commit of programs.toml, in a folder named
owner+name. Each program runs in a copy of its checkout, alone and then under `boundby run
--continue`, with the same made-up data, on two cores. Those that train for ever are compared up to
where the shorter run ended.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from program import Program
from programs_list import PROGRAMS
from programs_table import LEDGER, table

# Seeds what torch does not seed by itself, and accepts made-up data whose check sums are not those
# of the real one; used alone and under boundby.
_SEEDS = """
import importlib.util, os, random, sys
import numpy
random.seed(0)
numpy.random.seed(0)
def _exists(path, md5=None):
    return os.path.isfile(path)
_AFTER = {
    "torch": lambda torch: torch.manual_seed(0),
    "torchvision.datasets.utils": lambda utils: setattr(utils, "check_integrity", _exists),
}
class _Prepare:
    def find_spec(self, name, path=None, target=None):
        act = _AFTER.pop(name, None)
        if act is not None:
            spec = importlib.util.find_spec(name)
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), act(module))
            return spec
sys.meta_path.insert(0, _Prepare())
"""
# Times, paths and process numbers differ from run to run.
_CLOCKS = re.compile(
    r"\d+(\.\d+)?(e-?\d+)? ?(ms|sec|s|it/s|seconds|samples/s|min)\b(/batch|/it)?"
    r"|\d+:\d\d(:\d\d)?(\.\d+)?|\d\d\d\d-\d\d-\d\d|SPS: \d+|mfu -?[\d.]+%"
    r"|[Tt]ime[^0-9\n]{0,12}[\d.]+( ?\([\d.]+\))?|[\d.]+ ?(?:/s|im/s|steps_per_second)"
    r"|\b\w*(runtime|_per_sec(ond)?|_step_time)['\"]?[ :=]+['\"]?[\d.]+'?"
    r"|ms/batch +[\d.]+|[\d.]+ms\b|tok/sec: [\d,]+|\d+ tok(?:ens)?/s(?:ec)?"
    r"|max mem: \d+|eta: \S+|data: [\d.]+|elapsed[^\n]*|Took [\d.e-]+|0x[0-9a-f]+"
    r"|-[0-9a-f]{16}\b|[━╸╺]+|_\d\d-\d\d-\d\d\b"
)
_LONGEST_S = 240.0


@dataclass(kw_only=True)
class Outcome:
    """How one run of a program ended, what it printed and the files that it wrote."""

    code: int
    seconds: float
    out: str
    err: str
    files: dict[str, str]
    ended: bool


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("run", "table", "list"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--checkouts", type=Path)
    parser.add_argument(
        "--python", default=sys.executable, help="has torch, boundby and what the programs need"
    )
    parser.add_argument("--keep", type=Path, help="keep output and diagnoses in this folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--endless-s", type=float, default=45.0, help="how long those that never end run"
    )
    chosen = parser.parse_intermixed_args()
    if chosen.command == "table":
        table(PROGRAMS)
        return
    programs = [one for one in PROGRAMS if not chosen.names or one.name in chosen.names]
    if chosen.command == "list":
        for one in programs:
            print(f"{one.name}: {one.repository} {one.path} {one.args}")
        return
    if chosen.checkouts is None:
        parser.error("run needs --checkouts DIR")
    for program in programs:
        row = try_one(program, chosen)
        print(summary(LEDGER.append(row)), flush=True)


def try_one(program: Program, chosen: argparse.Namespace) -> dict[str, Any]:
    """Run it alone and under boundby; what came of it."""
    source = chosen.checkouts / program.repository.replace("/", "+")
    if not source.is_dir():
        return {"name": program.name, "error": "not checked out"}
    with tempfile.TemporaryDirectory(prefix="program-") as temporary:
        folder = Path(temporary)
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(_SEEDS)
        alone = run(program, source, folder, [chosen.python], chosen)
        diagnosis = folder / "diagnosis.json"
        under_boundby = [
            chosen.python,
            "-m",
            "boundby",
            "run",
            "--verbose",
            "--json",
            str(diagnosis),
        ]
        if program.ends:
            under_boundby.append("--continue")
        under = run(program, source, folder, under_boundby, chosen)
        found = json.loads(diagnosis.read_text()) if diagnosis.is_file() else None
    if chosen.keep is not None:
        save(chosen.keep / program.name.replace(" ", "_"), alone, under, found)
    return judge(program, alone, under, found)


def run(
    program: Program, source: Path, folder: Path, command: list[str], chosen: argparse.Namespace
) -> Outcome:
    """One run in a fresh copy of the checkout, which is at the same place every time."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work, symlinks=True)
    for make, path in program.data:
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        make(work / path)
    before = digests(work)
    needs = [str(folder / "site"), *(str(work / one) for one in program.needs)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(needs),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(chosen.threads),
        "NO_COLOR": "1",
        "MPLBACKEND": "agg",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        # For programs that were written before torch.load refused arrays of numpy.
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
        **program.environment,
    }
    target = ["-m", program.path] if program.module else [str(work / program.path)]
    whole = [*command, *target, *shlex.split(program.args)]
    limit = _LONGEST_S if program.ends else chosen.endless_s
    if "boundby" in command:
        limit = 3 * limit + 120
    began = time.monotonic()
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        process = subprocess.Popen(
            whole,
            cwd=work / program.start,
            env=environment,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code, ended = process.wait(limit), True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code, ended = process.wait(), False
        seconds = time.monotonic() - began
    after = digests(work)
    files = {name: digest for name, digest in after.items() if before.get(name) != digest}
    texts = [(folder / name).read_text(errors="replace") for name in ("out", "err")]
    return Outcome(code=code, seconds=seconds, out=texts[0], err=texts[1], files=files, ended=ended)


def digests(folder: Path) -> dict[str, str]:
    """Every file's digest; names that hold a time or a process count without their digits."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = re.sub(r"\d{4,}(-\d\d){0,2}|_\d\d-\d\d-\d\d", "#", str(path.relative_to(folder)))
            name = re.sub(r"#[^/]*$", "#", name) if "tfevents" in name else name
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def judge(
    program: Program, alone: Outcome, under: Outcome, found: dict[str, Any] | None
) -> dict[str, Any]:
    """Whether the program did the same under boundby, and what boundby said of it."""
    values, others = printed(alone.out), printed(under.out)
    if not program.ends:
        # The last line of a run that was ended may be cut off.
        shorter = max(0, min(len(values), len(others)) - 1)
        values, others = values[:shorter], others[:shorter]
    different = [(one, other) for one, other in zip(values, others, strict=False) if one != other]
    same_files = alone.files.keys() == under.files.keys() or not program.ends
    changed = sorted(
        name for name in alone.files if under.files.get(name) not in (None, alone.files[name])
    )
    kind = found["step"]["kind"] if found else None
    share = (found.get("run") or {}).get("step_share") if found else None
    findings = found["findings"] if found else []
    return {
        "name": program.name,
        "ran_alone": alone.ended and alone.code == 0
        if program.ends
        else not alone.ended or alone.code == 0,
        "same_exit": alone.code == under.code if program.ends else under.code == 0,
        "same_values": values == others,
        "lines": len(values),
        "first_difference": different[0]
        if different
        else (len(values), len(others))
        if values != others
        else None,
        "same_files": same_files,
        "files_changed": [name for name in changed if program.ends],
        "kind": kind,
        "right_step": bool(kind and re.match(program.step, kind)),
        "step_ns": found["step"]["wall_ns"] if found else None,
        "share_of_wall": share,
        "finding": first_finding(findings),
        "notes": [note["code"] for note in found.get("notes", [])] if found else [],
        "alone_s": alone.seconds,
        "under_s": under.seconds,
        "last_error": under.err.strip().splitlines()[-1:] if under.code else [],
        "program": {
            key: value
            for key, value in asdict(program).items()
            if key in ("repository", "path", "args")
        },
    }


def printed(text: str) -> list[str]:
    """What a program printed, without clocks; progress bars overwrite their line."""
    lines = [line.rpartition("\r")[2] for line in text.splitlines()]
    return [_CLOCKS.sub("#", line).strip() for line in lines]


def first_finding(findings: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not findings:
        return None
    first = findings[0]
    return {key: first.get(key) for key in ("fault", "title", "where", "saving_ns", "change")}


def save(folder: Path, alone: Outcome, under: Outcome, found: dict[str, Any] | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, outcome in (("alone", alone), ("under", under)):
        (folder / f"{name}.out").write_text(outcome.out)
        (folder / f"{name}.err").write_text(outcome.err)
    if found is not None:
        (folder / "diagnosis.json").write_text(json.dumps(found, indent=1))


def summary(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['name']}: {row['error']}"
    failed = [
        name
        for name in ("ran_alone", "same_exit", "same_values", "same_files", "right_step")
        if not row[name]
    ]
    words = "ok" if not failed else "NOT " + ", ".join(failed)
    finding = (row["finding"] or {}).get("fault")
    more = [row[name] for name in ("first_difference", "files_changed", "last_error") if row[name]]
    return (
        f"{row['name']}: {words}; {row['kind']}, first {finding}, {row['alone_s']:.0f} s alone,"
        f" {row['under_s']:.0f} s under {more or ''}"
    )


if __name__ == "__main__":
    main()
