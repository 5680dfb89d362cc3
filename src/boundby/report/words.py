"""What several reports for a terminal share."""

from __future__ import annotations

from boundby.model.diagnosis import GroupName

COLOURS: dict[GroupName, str] = {
    "compute": "green",
    "bandwidth": "blue",
    "overhead": "red",
    "unknown": "bright_black",
}


def last_part(where: str | None) -> str:
    """The file and line without its folders."""
    return where.rsplit("/", 1)[-1] if where else ""


def counted(number: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
