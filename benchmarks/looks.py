"""What boundby saw of a step, taken from inside a fresh process: for tools that ask why."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger import ROOT

from fixes import CASES

_OPTION = "--look"


def look(script: str, words: list[str]) -> Any:
    """What a script of `for_each_model` finds in a workload's picture, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.json"
        command = [sys.executable, script, _OPTION, str(target), *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not target.exists():
            raise SystemExit(f"{' '.join(words)}: failed\n{done.stderr[-2000:]}")
        return json.loads(target.read_text())


def for_each_model(
    document: str | None, find: Callable[[Any], Any], compare: Callable[[str], None]
) -> None:
    """A script's main: `compare` for each model that it is given, with looks by `find`."""
    if sys.argv[1:2] == [_OPTION]:
        _answer(find)
        return
    parser = argparse.ArgumentParser(description=document)
    parser.add_argument("names", nargs="+", metavar="MODEL", choices=CASES, help=", ".join(CASES))
    for name in parser.parse_args().names:
        compare(name)


def _answer(find: Callable[[Any], Any]) -> None:
    """In the process that `look` started: diagnose, and keep what is found in the picture."""
    from boundby.cli import main
    from boundby.diagnosis import conductor

    target, *words = sys.argv[2:]
    advise, seen = conductor.advise, []

    def listen(step_models: Any, timer: Any) -> Any:
        seen.append(step_models[0])
        return advise(step_models, timer)

    conductor.advise = listen
    sys.argv = ["boundby", "run", "--quiet", "benchmarks/workloads.py", *words]
    with contextlib.suppress(SystemExit):
        main()
    (step_model,) = seen
    Path(target).write_text(json.dumps(find(step_model)))
