"""What a verb is given to read, looked at before it runs anything."""

from __future__ import annotations

from pathlib import Path


def check_machine(path: Path | None) -> None:
    """A saved machine that cannot be read is said before the script begins."""
    if path is not None:
        from boundby.roofs import cache

        cache.read(path)
