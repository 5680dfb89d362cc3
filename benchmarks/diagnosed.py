"""A script's diagnosis, made by boundby in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledger import ROOT


def diagnosed(name: str, script: Sequence[str]) -> dict[str, Any] | None:
    """Of a script and its options; None where there is none, with boundby's last words printed."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "diagnosis.json"
        done = subprocess.run(
            [sys.executable, "-m", "boundby", "run", "--json", str(target), *script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if target.exists():
            found: dict[str, Any] = json.loads(target.read_text())
            return found
    print(f"{name}: failed\n{done.stderr[-3000:]}")
    return None
