"""The content of the page: a diagnosis or a comparison as one compact JSON object."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from boundby.model.comparison import Comparison
from boundby.model.diagnosis import Diagnosis
from boundby.report.page.columns import Strings, columns, lanes, short

# Tables that the page does not show.
_LEFT_OUT = ("launches", "launch_queue", "sequences")
_AS_COLUMNS = ("ops", "lines", "modules")
_NOT_ESCAPED_BY_JSON = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def diagnosis_content(diagnosis: Diagnosis) -> str:
    strings = Strings()
    told: dict[str, Any] = {"kind": "diagnosis", "version": _version()}
    for field in diagnosis.__struct_fields__:
        value = getattr(diagnosis, field)
        if field in _LEFT_OUT:
            continue
        if field in _AS_COLUMNS:
            told[field] = columns(value, strings)
        elif field == "timeline":
            told["lanes"] = lanes(value, strings)
        elif field == "notes":
            told["warnings"] = [note.text for note in diagnosis.notes]
        else:
            told[field] = short(msgspec.to_builtins(value))
    told["strings"] = strings.table
    return as_script(told)


def comparison_content(comparison: Comparison) -> str:
    told = short(msgspec.to_builtins(comparison))
    return as_script({"kind": "comparison", "version": _version(), **told})


def as_script(told: dict[str, Any]) -> str:
    """JSON that cannot end its script element early, whatever text is in it."""
    text = msgspec.json.encode(told).decode()
    for character, escape in _NOT_ESCAPED_BY_JSON.items():
        text = text.replace(character, escape)
    return text


def _version() -> str:
    # Importing the package itself would import its other layers, and torch.
    return str(sys.modules["boundby"].__version__)
