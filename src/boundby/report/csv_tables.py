"""All tables of a diagnosis as CSV files, with times in ns."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from boundby.model import Record
from boundby.model.diagnosis import Diagnosis


def csv_tables(diagnosis: Diagnosis) -> dict[str, str]:
    """Each table that has rows, by the name of its file."""
    queue = diagnosis.launch_queue
    tables: dict[str, list[dict[str, Any]]] = {
        "account": _account(diagnosis),
        "lines": _rows(diagnosis.lines, without=("inside", "callers", "advice")),
        "modules": _rows(diagnosis.modules, without=("inside", "callers", "advice")),
        "operators": _rows(diagnosis.ops),
        "kernel_classes": _rows(diagnosis.kernel_classes),
        "classes": _rows(diagnosis.classes),
        "collectives": _rows(diagnosis.collectives),
        "idle": _rows(diagnosis.idle),
        "launches": _rows(diagnosis.launches),
        "queue": _rows([queue] if queue else []),
        "sequences": _rows(diagnosis.sequences),
        "critical_path": _rows(diagnosis.critical_path),
        "slack": _rows(diagnosis.slack),
        "ranks": _rows(diagnosis.ranks),
        "findings": _rows(diagnosis.findings, without=("summary", "why", "when_not")),
    }
    return {f"{name}.csv": _text(rows) for name, rows in tables.items() if rows}


def _account(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    rows = []
    for name, group in diagnosis.account.groups().items():
        rows.append({"group": name, "part": "", "ns": group.ns})
        rows += [{"group": name, "part": part, "ns": ns} for part, ns in group.parts.items()]
    return rows


def _rows(records: Sequence[Record], without: Sequence[str] = ()) -> list[dict[str, Any]]:
    return [
        _flat({key: value for key, value in msgspec.to_builtins(row).items() if key not in without})
        for row in records
    ]


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Groups and ranges as separate columns: `groups.compute`; lists as one text."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            flat[prefix + key] = " | ".join(map(str, value))
        else:
            flat[prefix + key] = value
    return flat


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    written = io.StringIO()
    table = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return written.getvalue()
