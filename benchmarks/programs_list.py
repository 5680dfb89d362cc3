"""Public programs that boundby is tried on, unedited, as programs.toml lists them.

None of their code is kept here.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import programs_data
import programs_hub
from program import Program
from programs_data import Make

_LIST = tomllib.loads((Path(__file__).parent / "programs.toml").read_text())


def _maker(name: str) -> Make:
    maker: Make = getattr(programs_data if hasattr(programs_data, name) else programs_hub, name)
    return maker


def _program(fields: dict[str, Any]) -> Program:
    data = tuple((_maker(make), path) for make, path in fields.pop("data", ()))
    return Program(**fields, data=data)


# The commit of each repository.
COMMITS: dict[str, str] = _LIST["commits"]
PROGRAMS = tuple(_program(dict(fields)) for fields in _LIST["program"])
