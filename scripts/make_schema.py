"""Write docs/diagnosis.schema.json, for saved diagnoses; `--check` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from boundby.model.diagnosis import Diagnosis

FILE = Path(__file__).resolve().parents[1] / "docs" / "diagnosis.schema.json"


def schema() -> str:
    return json.dumps(msgspec.json.schema(Diagnosis), indent=1) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == schema() else f"{FILE.name} is out of date: make docs")
    FILE.write_text(schema())
