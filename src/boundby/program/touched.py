"""What was really changed in a program: a treatment that found nothing to change proves nothing."""

from __future__ import annotations

from collections import Counter

# How often each kind of change was made, by its words.
touched: Counter[str] = Counter()


def note(what: str) -> None:
    """Say that something was changed, in words a report can show."""
    touched[what] += 1
