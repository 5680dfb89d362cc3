"""Finds the lines of the script that set a given setting, from its text.

The text only gives the place; torch itself reports whether a setting is active.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from boundby.capture.torch.evidence.float64_entries import float64_entries, scopes_on_stack
from boundby.capture.torch.evidence.places import user_line

_ANOMALY = ("set_detect_anomaly", "detect_anomaly")
_OTHERS = ("set_num_threads", "use_deterministic_algorithms")
_DOUBLES = ("double", "float64", "from_numpy", "set_default_dtype")
_MOST_FILES, _MOST_BYTES = 50, 1 << 20  # of the script's modules; limits the time to search


class SettingLines(NamedTuple):
    anomaly: list[str]
    others: list[str]
    doubles: list[str]
    compiled: list[str]
    doubles_made: list[str]


def setting_lines() -> SettingLines:
    """The lines that change settings, in the script and in modules beside it."""
    found = SettingLines([], [], [], [], [])
    for path, names in _files().items():
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
            code = compile("0", str(path), "eval")
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            _note(node, code, found)
        for number in float64_entries(tree, names, scopes_on_stack(str(path))):
            line = user_line(code, number)
            if line is not None:
                found.doubles_made.append(line)
    return found


def _note(node: ast.AST, code: CodeType, found: SettingLines) -> None:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    # Other modules have a `compile` too.
    compiled = ("compile",) if _is_of_torch(node) else ()
    for names, lines in zip((_ANOMALY, _OTHERS, _DOUBLES, compiled), found[:4], strict=True):
        if name in names:
            line = user_line(code, getattr(node, "lineno", None))
            if line is not None and line not in lines:
                lines.append(line)


def _is_of_torch(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Name) and value.id == "torch"


def _files() -> dict[Path, Mapping[str, Any]]:
    """Each file with the names of its module."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not file:
        return {}
    script = Path(file).absolute()
    found: dict[Path, Mapping[str, Any]] = {script: vars(main)}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path = Path(file).absolute()
            if script.parent in path.parents and "site-packages" not in path.parts:
                found[path] = vars(module)
    files = [path for path in list(found)[:_MOST_FILES] if path.is_file()]
    return {path: found[path] for path in files if path.stat().st_size <= _MOST_BYTES}
