"""Checks of a command's input files, before anything is run."""

from __future__ import annotations

import json
from pathlib import Path

from boundby.model.errors import BoundbyError


def check_machine(path: Path | None) -> None:
    """Raise for a file that cannot be a saved machine, before the script begins.

    Uses only Python's own modules: nothing heavy is loaded before a script. The content is checked
    later.
    """
    if path is None:
        return
    try:
        saved = json.loads(path.read_bytes())
    except OSError as error:
        raise BoundbyError(f"cannot read the machine {path}: {error.strerror}") from None
    except ValueError:
        saved = None
    if not isinstance(saved, dict) or "roofs" not in saved:
        raise BoundbyError(f"{path} is not a saved machine: boundby machine --json FILE writes one")
