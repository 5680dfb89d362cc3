"""Rows of published tables: a few are kept here, whole files are scored in docs/figures/plan.md."""

import csv
from pathlib import Path

import pytest

from boundby.model.errors import BoundbyError
from boundby.plan import training_rows
from boundby.plan.row_values import RowError
from boundby.plan.table import predict_file, spearman

ROW = {
    "id": "mosaic-080",
    "model": "mpt-30b",
    "layers": "48",
    "hidden": "7168",
    "ffn": "28672",
    "heads": "56",
    "kv_heads": "56",
    "vocab": "50368",
    "seq_len": "2048",
    "chip": "a100-80gb",
    "chips": "64",
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "fsdp": "zero3:64",
    "global_batch_tokens": "2097152",
    "micro_batch": "8",
    "dtype": "bf16",
    "recompute": "full",
    "measured_step_s": "32.0",
    "notes": "mlp=plain;tied embeddings",
}


def _write(tmp_path: Path, rows: list[dict[str, str]]) -> str:
    file = tmp_path / "table.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(file)


def test_each_row_is_predicted_in_its_own_unit(tmp_path: Path) -> None:
    table = predict_file(_write(tmp_path, [ROW]))
    (row,) = table.rows
    assert row.unit == "s"
    assert row.predicted.low < row.predicted.expected < row.predicted.high
    assert 0.5 < row.predicted.expected / row.measured < 2


def test_rows_without_sizes_are_counted(tmp_path: Path) -> None:
    table = predict_file(_write(tmp_path, [ROW, {**ROW, "hidden": ""}]))
    assert len(table.rows) == 1
    assert table.skipped == {"no hidden": 1}


def test_file_with_other_columns_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(BoundbyError, match="no table of measurements"):
        predict_file(_write(tmp_path, [{"a": "1"}]))


def test_rank_correlation_of_equal_and_opposite_orders() -> None:
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3], [30, 20, 10]) == pytest.approx(-1)


def test_a_layout_measured_twice_is_ranked_once(tmp_path: Path) -> None:
    layouts = [{"tp": str(2**n), "dp": str(256 // 2**n), "fsdp": "zero1"} for n in range(4)]
    rows = [{**ROW, "id": f"x-{i}", **one} for i, one in enumerate([*layouts, layouts[0]])]
    order = sorted(
        predict_file(_write(tmp_path, rows)).rows, key=lambda row: row.predicted.expected
    )
    for rank, row in enumerate(order):
        next(one for one in rows if one["id"] == row.id)["measured_step_s"] = str(10 + rank)
    table = predict_file(_write(tmp_path, rows))
    assert table.scores[0].rank_correlation == pytest.approx(1)


def test_rows_with_stated_memory_are_scored_separately(tmp_path: Path) -> None:
    rows = [{**ROW, "mem_gib": "30"}, {**ROW, "id": "x-2", "mem_gib": "", "measured_step_s": "9"}]
    table = predict_file(_write(tmp_path, rows))
    assert len(table.rows) == 2
    (held,) = table.memory
    assert held.unit == "GiB"
    assert 0.3 < held.predicted.expected / 30 < 3


@pytest.mark.parametrize("value", ["", "0", "-1", "1e30", "nan", "many"])
@pytest.mark.parametrize("column", ["hidden", "seq_len", "chips", "global_batch_tokens"])
def test_row_with_an_unusable_size_is_skipped(tmp_path: Path, column: str, value: str) -> None:
    table = predict_file(_write(tmp_path, [ROW, {**ROW, "id": "", column: value}]))
    assert len(table.rows) == 1
    assert sum(table.skipped.values()) == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("fsdp", ["zero3:64", "ZeRO-3:64", "fsdp", "full_shard"]),
        ("dtype", ["fp8", "FP8", "fp8-hybrid", "fp8 (tensorwise)", "float8"]),
        ("recompute", ["full", "Full"]),
        ("chip", ["a100-80gb", "A100-SXM4-80GB"]),
    ],
)
def test_other_spellings_are_read(tmp_path: Path, column: str, values: list[str]) -> None:
    table = predict_file(_write(tmp_path, [{**ROW, "chip": "h100", column: one} for one in values]))
    assert len(table.rows) == len(values)
    assert len({row.predicted.expected for row in table.rows}) == 1


def test_a_known_model_needs_no_sizes(tmp_path: Path) -> None:
    sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")
    row = {**ROW, "model": "llama3.1-8b", **dict.fromkeys(sizes, "")}
    assert len(predict_file(_write(tmp_path, [row])).rows) == 1


@pytest.mark.parametrize(
    "wrong", [{"notes": "head_dim=wide"}, {"experts": "8", "active_experts": ""}]
)
def test_row_with_unusable_text_is_skipped(tmp_path: Path, wrong: dict[str, str]) -> None:
    rows = [{**ROW, "experts": "", "active_experts": "", **one} for one in ({}, wrong)]
    table = predict_file(_write(tmp_path, rows))
    assert len(table.rows) == 1
    assert sum(table.skipped.values()) == 1


def test_missing_heads_and_layers_are_derived() -> None:
    """Heads are 128 wide, layers make up the stated parameters; without those the row is listed."""
    row = {
        "id": "x-001", "model": "gpt", "hidden": "4096", "ffn": "16384", "vocab": "50304",
        "params_b": "6.85", "seq_len": "2048", "chip": "a100", "chips": "8",
        "global_batch_tokens": "131072", "measured_step_s": "5",
    }  # fmt: skip
    config = training_rows.case_of(row).config
    assert (config.heads, config.head_dim, config.layers) == (32, 128, 32)
    with pytest.raises(RowError, match="no layers"):
        training_rows.case_of({**row, "params_b": ""})
