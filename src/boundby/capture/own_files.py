"""Decides which source files are boundby's own, and which a compiler wrote.

A folder's name is not enough: users clone boundby into a folder named boundby, and have virtual
environments and projects in folders of that name. What counts is whether the file is one of this
package's.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# As in the package's own code objects, ending in a slash.
OWN_FOLDER = f"{Path(__file__).parents[1].as_posix()}/"
# After the names of files whose frames warnings do not count (own_frames.py).
HIDDEN_FROM_WARNINGS = " (like importlib._bootstrap)"

# Inductor's files, in any cache folder: named for a hash, in a folder named for its beginning.
_GENERATED = re.compile(r"(?:^|/)[a-z2-7]{2}/c[a-z2-7]{50,}\.py$|torchinductor|/\.triton/cache/")


def is_generated_file(path: str) -> bool:
    """Whether torch.compile wrote the file."""
    return _GENERATED.search(path) is not None


@functools.cache
def _modules() -> frozenset[str]:
    """The package's files, relative to its parent folder: "boundby/cli/run.py"."""
    return frozenset(
        path.relative_to(_PACKAGE.parent).as_posix() for path in _PACKAGE.rglob("*.py")
    )


@functools.cache
def is_own_file(path: str) -> bool:
    """Whether a path names one of boundby's files.

    Absolute paths are compared by their real location. torch's profiler shortens paths by the
    entries of `sys.path`, so a relative one is boundby's if the package has a file of that name.
    """
    path = path.replace("\\", "/").removesuffix(HIDDEN_FROM_WARNINGS)
    if path.startswith("/") or path[1:2] == ":":
        try:
            return _PACKAGE in Path(path).resolve().parents
        except (OSError, ValueError):  # no file has this name, as one with a null character
            return False
    return path in _modules()
