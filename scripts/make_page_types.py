"""Write web/src/model.ts, the types of the report page's content; `--check` only compares.

They are the types of `boundby.model` as JSON has them, the prefixes of units and the names of an
account's parts. What the page receives in another form
(columns, lanes, notes) is described by hand in web/src/content.ts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
from msgspec import inspect

from boundby.model.comparison import Comparison
from boundby.model.diagnosis import Diagnosis
from boundby.model.units import PREFIXES
from boundby.report.words import PART_NAMES

FILE = Path(__file__).resolve().parents[1] / "web" / "src" / "model.ts"
_HEADER = "// Made from boundby.model by scripts/make_page_types.py (make docs). Do not edit.\n"
# Fields of `Diagnosis` that are sent in another form: `timeline` as lanes, `notes` as warnings.
_SENT_OTHERWISE: dict[type[msgspec.Struct], tuple[str, ...]] = {Diagnosis: ("timeline", "notes")}
_PLAIN: dict[type[inspect.Type], str] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.StrType: "string",
}


class Interfaces:
    """TypeScript interfaces of records and of all records in their fields."""

    def __init__(self) -> None:
        self._written: dict[type, str] = {}

    def add(self, record: type) -> None:
        found = inspect.type_info(record)
        assert isinstance(found, inspect.StructType)
        self._type(found)

    def __str__(self) -> str:
        return _HEADER + "".join(f"\n{text}" for text in self._written.values())

    def _type(self, kind: inspect.Type) -> str:
        """The TypeScript type of one of the model's; an error if there is none."""
        if type(kind) in _PLAIN:
            return _PLAIN[type(kind)]
        match kind:
            case inspect.StructType():
                return self._interface(kind)
            case inspect.UnionType(types=types):
                return " | ".join(self._type(each) for each in types)
            case inspect.LiteralType(values=values):
                return " | ".join(f'"{value}"' for value in values)
            case inspect.EnumType(cls=cls):
                return " | ".join(f'"{member.value}"' for member in cls)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                words = self._type(item)
                return f"({words})[]" if " | " in words else f"{words}[]"
            case inspect.TupleType(item_types=items):
                return f"[{', '.join(self._type(item) for item in items)}]"
            case inspect.DictType(value_type=value):
                return f"Record<string, {self._type(value)}>"
        raise TypeError(f"no TypeScript type for {kind}")

    def _interface(self, record: inspect.StructType) -> str:
        name = record.cls.__name__
        if record.cls not in self._written:
            if name in {cls.__name__ for cls in self._written}:
                raise TypeError(f"two records are called {name}")
            self._written[record.cls] = ""  # A record may contain itself.
            if record.cls.__struct_config__.omit_defaults:
                raise TypeError(f"{name} leaves out defaults: its fields may be missing")
            left_out = _SENT_OTHERWISE.get(record.cls, ())
            fields = "".join(
                f"  {field.encode_name}: {self._type(field.type)};\n"
                for field in record.fields
                if field.name not in left_out
            )
            self._written[record.cls] = f"export interface {name} {{\n{fields}}}\n"
        return name


def types() -> str:
    interfaces = Interfaces()
    interfaces.add(Diagnosis)
    interfaces.add(Comparison)
    constants = (
        f"export const PREFIXES = {json.dumps(PREFIXES)};\n"
        f"export const PARTS: Record<string, string> = {json.dumps(PART_NAMES, indent=2)};\n"
    )
    return f"{interfaces}\n{constants}"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == types() else f"{FILE.name} is out of date: make docs")
    FILE.write_text(types())
