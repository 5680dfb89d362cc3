"""Names and colours that several terminal reports share."""

from __future__ import annotations

import re

from boundby.model.account import GroupName

# Columns of a report that is written to a file or a pipe.
TEXT_WIDTH = 100

COLOURS: dict[GroupName, str] = {
    "compute": "green",
    "bandwidth": "blue",
    "overhead": "red",
    "unknown": "bright_black",
}

PART_NAMES = {
    "device_memory": "device memory",
    "host_link": "host link",
    "network": "network",
    "python": "Python and framework",
    "launch": "kernel launches",
    "sync": "device syncs",
    "data": "waiting for data",
    "unseen": "device waits for something that the trace does not show",
    "core": "waiting for a CPU core",
    "small_kernels": "small kernels",
}
# The same, short enough for a column.
SHORT_PART_NAMES = PART_NAMES | {
    "python": "Python",
    "launch": "launch",
    "sync": "sync",
    "data": "data",
    "unseen": "unseen wait of the device",
    "core": "CPU wait",
    "small_kernels": "small kernels",
}

_TEMPLATE = re.compile(r"[<(].*$", re.DOTALL)
_NAMESPACE = re.compile(r"^(?:void )?(?:\w+::)+")


def last_part(where: str | None) -> str:
    """The file name and line without the folders."""
    return where.rsplit("/", 1)[-1] if where else ""


def counted(number: int, what: str, plural: str = "s") -> str:
    """`1 step`, `2 steps`; `plural` is what is appended."""
    return f"{number} {what}{'' if number == 1 else plural}"


def sentence(text: str) -> str:
    """The text with a capital first letter and a full stop."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def short_name(name: str) -> str:
    """An operator's or a kernel's name without namespaces and template arguments."""
    if name.startswith("aten::"):
        return name.removeprefix("aten::")
    plain = _TEMPLATE.sub("", name.replace("(anonymous namespace)::", ""))
    return _NAMESPACE.sub("", plain).removeprefix("void ") or name
