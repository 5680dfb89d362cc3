"""What was really changed in a program: a treatment that found nothing to change proves nothing."""

from __future__ import annotations

from collections import Counter

# How often each kind of change was made, by its words; never, for why one was not.
changes_made: Counter[str] = Counter()


def note(what: str) -> None:
    """Say that something was changed, in words a report can show."""
    changes_made[what] += 1


def leave(why: str) -> None:
    """Say why something was left as it is, where a change would have broken it."""
    changes_made.setdefault(why, 0)
