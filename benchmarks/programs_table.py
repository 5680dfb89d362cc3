"""Write docs/programs.md from what benchmarks/programs.py measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger import ROOT, Ledger
from programs_list import COMMITS, Program

LEDGER = Ledger("programs", key=("name", "device"))
DOCUMENT = ROOT / "docs" / "programs.md"


def table(programs: Sequence[Program]) -> None:
    print(LEDGER.newest())
