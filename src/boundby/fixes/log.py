"""What was changed in a program: a fix that found nothing to change proves nothing."""

from __future__ import annotations

from collections import Counter

# How often each kind of change was made, by description; zero with the reason it was not made.
changes_made: Counter[str] = Counter()


def note(what: str) -> None:
    """Record a change, in words for a report."""
    changes_made[what] += 1


def leave(why: str) -> None:
    """Record why something was not changed, because a change would have broken it."""
    changes_made.setdefault(why, 0)
