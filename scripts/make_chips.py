"""Write hardware/chips.json from chips.toml, which takes ten times as long to parse; `--check` only
compares."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "src" / "boundby" / "hardware" / "chips.toml"
FILE = TABLE.with_suffix(".json")


def made() -> str:
    return json.dumps(tomllib.loads(TABLE.read_text("utf-8")), separators=(",", ":")) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        is_current = FILE.read_text("utf-8") == made()
        sys.exit(0 if is_current else f"{FILE.name} is out of date: make docs")
    FILE.write_text(made(), "utf-8")
