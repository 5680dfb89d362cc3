"""Tables as CSV: every figure of the diagnosis, a column for each group."""

import csv
import io

import pytest

from boundby.report.csv_tables import csv_tables
from tests.diagnoses import full_diagnosis


def test_each_table_is_a_file_with_the_figures_of_the_diagnosis() -> None:
    diagnosis = full_diagnosis()
    tables = csv_tables(diagnosis)
    assert {"account.csv", "lines.csv", "operators.csv", "kernel_classes.csv"} <= set(tables)
    assert {"launches.csv", "queue.csv"} <= set(tables)
    operators = list(csv.DictReader(io.StringIO(tables["operators.csv"])))
    assert [row["name"] for row in operators] == [row.name for row in diagnosis.ops]
    for row, op in zip(operators, diagnosis.ops, strict=True):
        assert float(row["ns"]) == pytest.approx(op.ns)
        assert float(row["median_ns"]) <= op.ns
    lines = list(csv.DictReader(io.StringIO(tables["lines.csv"])))
    assert float(lines[0]["groups.overhead"]) == diagnosis.lines[0].groups["overhead"]
