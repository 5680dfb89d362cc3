"""Commands that a script runs: what to type so that the script in them is observed.

Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Programs that start a script in one or several processes: `boundby run` comes after their options.
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_AND = re.compile(r"&&|\|\||[;|&\n]")
_SETS = re.compile(r"[A-Za-z_]\w*=")
_WORKERS = ("_inductor",)  # part of the name of what torch runs to compile


def observing(command: Any, environment: Mapping[str, str] | None = None) -> str | None:
    """`python train.py --lr 1` gives `boundby run train.py --lr 1`; None if it runs no script.

    `environment`: that of the new process; one that a launcher started has its rank in it.
    """
    for words in _commands(command):
        if found := _observing(words):
            if found.startswith("boundby ") and _is_rank(environment):
                return f"torchrun ... -m {found}"
            return found
    return None


def _commands(command: Any) -> list[list[str]]:
    """The words of each command; a shell's are divided."""
    try:
        if isinstance(command, str):
            return [shlex.split(one) for one in _AND.split(command)]
        words = [os.fspath(word) for word in command]
    except (TypeError, ValueError):
        return []
    if not all(isinstance(word, str) for word in words):
        return []
    if len(words) > 2 and Path(words[0]).name in _SHELLS and words[1].lstrip("-").endswith("c"):
        return _commands(words[2])
    return [words]


def _observing(words: list[str]) -> str | None:
    while words and _SETS.match(words[0]):
        words = words[1:]
    if not words:
        return None
    program, *rest = words
    name = Path(program).name
    if name in _LAUNCHERS:
        return _launched([name, *rest])
    if name in _SHELLS:
        return _in_shell_script(rest)
    if not name.startswith("python"):
        return None
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0] == "-c":
            return None
        rest = rest[1:]
    if rest[0:1] == ["-m"] and rest[1:] and rest[1].startswith(_LAUNCHER_MODULES):
        return _launched(["python", *rest])
    is_script = bool(rest) and (rest[0] == "-m" or rest[0].endswith(".py"))
    if not is_script or any(part in word for part in _WORKERS for word in rest[:2]):
        return None
    return f"boundby run {shlex.join(rest)}"


def _launched(words: list[str]) -> str | None:
    """`torchrun --nproc-per-node 2 train.py`, with boundby before the script."""
    for at, word in enumerate(words):
        if word.endswith(".py"):
            return f"{shlex.join(words[:at])} -m boundby run {shlex.join(words[at:])}"
    return None


def _in_shell_script(rest: list[str]) -> str | None:
    if rest and not rest[0].startswith("-"):
        return f"`boundby run` instead of `python` in {rest[0]}"
    return None


def _is_rank(environment: Mapping[str, str] | None) -> bool:
    size = (environment or {}).get("WORLD_SIZE", "1")
    return size.isdigit() and int(size) > 1
