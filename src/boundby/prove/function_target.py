"""A function as a script: `-m boundby.prove.function_target MODULE QUALNAME ARGUMENTS.pickle`.

Calls it forever, a step each time, until the process is ended.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from pathlib import Path

import boundby


def main() -> None:
    module, qualname, arguments = sys.argv[1:]
    function = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    args, kwargs = pickle.loads(Path(arguments).read_bytes())
    while True:
        function(*args, **kwargs)  # type: ignore[operator]
        boundby.step()


if __name__ == "__main__":
    main()
