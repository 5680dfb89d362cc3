"""How the script is started, for changes that are made outside it."""

from __future__ import annotations

import re

from boundby.model import HostKind
from boundby.picture import Picture

_SCRIPT = re.compile(r"([^/\\]+\.py)\(\d+\): <module>$")
# Of the step: a module that is imported in it has a frame too.
_MOST = 0.9


def command(picture: Picture) -> str:
    """`python` and the script's name, where its own frame was seen around the step."""
    timeline, host = picture.timeline, picture.timeline.host
    names = {
        row: found.group(1)
        for row in (host.kind == HostKind.PYTHON).nonzero()[0]
        if (found := _SCRIPT.search(timeline.names[host.name[row]]))
    }
    around = [row for row in names if host.duration_ns[row] >= _MOST * timeline.wall_ns]
    # Whatever started the script is around it.
    return f"python {names[max(around)]}" if around else "python SCRIPT"
