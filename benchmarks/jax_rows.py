"""Rows about JAX programs: the options, the loop and the diagnosis that benchmarks share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ledger import FOLDER, Ledger, Row


def parser(document: str | None, name: str) -> argparse.ArgumentParser:
    """Options of a benchmark; `name` is that of its ledger."""
    made = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("names", nargs="*", metavar="NAME")
    made.add_argument("--scale", type=int, default=1)
    made.add_argument("--machine", type=Path, help="roofs saved with `boundby machine --json`")
    made.add_argument("--seconds", type=float, default=300.0, help="of one process, at most")
    made.add_argument("--budget", type=float, help="begin no other program after so many seconds")
    made.add_argument("--skip", type=Path, help="leave out what this file has a row of")
    made.add_argument("--json", type=Path, default=FOLDER / f"{name}.jsonl", help="append rows")
    return made


def measure(
    names: Iterable[str],
    options: argparse.Namespace,
    row_of: Callable[[str, argparse.Namespace], Row],
    *,
    key: str,
) -> None:
    """Append a row for each name; a failure is a row as well."""
    ledger = Ledger(options.json.stem, key=(key, "device"), folder=options.json.parent)
    known = {row[key] for row in rows_of(options.skip)} if options.skip is not None else set()
    began = time.monotonic()
    for name in names:
        if name in known:
            continue
        if options.budget is not None and time.monotonic() - began > options.budget:
            print(f"{name}: no time left", flush=True)
            continue
        since = time.monotonic()
        row: Row = {key: name, "scale": options.scale}
        try:
            row |= row_of(name, options)
        except (subprocess.SubprocessError, ValueError) as error:
            row |= {"device": row.get("device"), "problem": str(error)[-600:]}
        row["seconds"] = time.monotonic() - since
        print(json.dumps(ledger.append(row)), flush=True)


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def diagnosis(script: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """A script's diagnosis by `boundby run` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diagnosis.json"
        machine = ["--machine", str(options.machine)] if options.machine is not None else []
        output(["-m", "boundby", "run", "--quiet", "--json", str(path), *machine, *script], options)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def output(arguments: Sequence[str], options: argparse.Namespace) -> str:
    """What a Python process prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=options.seconds,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout
