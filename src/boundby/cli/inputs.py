"""What a verb is given to read, looked at before it runs anything."""

from __future__ import annotations

import json
from pathlib import Path

from boundby.model.errors import BoundbyError


def check_machine(path: Path | None) -> None:
    """A saved machine that cannot be one is said before the script begins.

    By what Python itself has: nothing heavy is loaded before a script. The rest is read after it.
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
