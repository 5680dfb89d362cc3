"""What the benchmarks measured, kept: one line of JSON a row, with its commit and device.

Ledgers are only ever added to. The newest row of each key counts; the older ones show how it
changed. `BOUNDBY_COMMIT` names the commit where there is no git, or where the tree is a copy.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "ledgers"

Row = dict[str, Any]


class Ledger:
    """A file of rows, and the fields that tell one measurement from another."""

    def __init__(self, name: str, *, key: tuple[str, ...], folder: Path = FOLDER) -> None:
        self.path = folder / f"{name}.jsonl"
        self.key = key

    def append(self, row: Row) -> Row:
        """The row as it was written: its commit and, where it does not say, its device."""
        row = {"commit": commit(), **row}
        if "device" not in row:
            row["device"] = device()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row

    def rows(self) -> list[Row]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines() if line]

    def newest(self) -> dict[tuple[Any, ...], Row]:
        """The last row of each key, in the order in which the keys came first."""
        return {tuple(row[field] for field in self.key): row for row in self.rows()}


@functools.cache
def commit() -> str:
    if named := os.environ.get("BOUNDBY_COMMIT"):
        return named
    try:
        found = _output(["git", "rev-parse", "--short", "HEAD"])
    except FileNotFoundError:
        return "unknown"
    return found or "unknown"


@functools.cache
def device() -> str:
    """The device as diagnoses name it, found in another process: forks after using CUDA fail."""
    question = "from boundby import hardware; print(hardware.identify().name)"
    return _output([sys.executable, "-c", question]) or "unknown"


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
