"""Rows of published serving measurements: units, layer splits, and what cannot be predicted."""

import csv
from pathlib import Path

import pytest

from boundby.model.errors import BoundbyError
from boundby.plan.table import predict_file

ROW = {
    "id": "x-001",
    "source": "x",
    "model": "Llama-2-7B",
    "params_b": "6.738",
    "active_params_b": "6.738",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "head_dim": "128",
    "vocab": "32000",
    "chip": "H100-SXM-80GB",
    "chips": "1",
    "tp": "1",
    "ep": "1",
    "pp": "1",
    "weight_dtype": "fp16",
    "act_dtype": "fp16",
    "kv_dtype": "fp16",
    "batch": "1",
    "input_len": "128",
    "output_len": "128",
    "metric": "decode_tokens_per_s",
    "value": "170",
    "engine": "some engine",
    "notes": "",
}


def _write(tmp_path: Path, *rows: dict[str, str]) -> str:
    file = tmp_path / "table.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(file)


def _expected(tmp_path: Path, **changed: str) -> float:
    table = predict_file(_write(tmp_path, {**ROW, **changed}))
    return table.rows[0].predicted.expected


def test_a_decode_step_reads_the_weights_once(tmp_path: Path) -> None:
    """13.2 GB of 16-bit weights at 3.35 TB/s: at most 254 tokens/s, of which 0.6 to 0.9."""
    assert 0.6 < _expected(tmp_path) / 254 < 0.9


def test_a_decode_rate_without_lengths_is_that_of_a_short_context(tmp_path: Path) -> None:
    unstated = _expected(tmp_path, input_len="", output_len="")
    assert _expected(tmp_path) < unstated < 1.02 * _expected(tmp_path)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("decode_tokens_per_s", "tokens/s"),
        ("output_tokens_per_s", "tokens/s"),
        ("total_tokens_per_s", "tokens/s"),
        ("requests_per_s", "requests/s"),
        ("ttft_ms", "ms"),
        ("tpot_ms", "ms"),
    ],
)
@pytest.mark.parametrize("batch", ["4", "max"])
def test_every_metric_is_predicted_in_its_unit(
    tmp_path: Path, metric: str, unit: str, batch: str
) -> None:
    (row,) = predict_file(_write(tmp_path, {**ROW, "metric": metric, "batch": batch})).rows
    assert row.unit == unit
    assert 0 < row.predicted.low < row.predicted.expected < row.predicted.high


def test_metrics_of_one_row_agree(tmp_path: Path) -> None:
    output = _expected(tmp_path, metric="output_tokens_per_s", batch="8")
    total = _expected(tmp_path, metric="total_tokens_per_s", batch="8")
    requests = _expected(tmp_path, metric="requests_per_s", batch="8")
    assert total == pytest.approx(2 * output)
    assert requests == pytest.approx(output / 128)
    assert output < _expected(tmp_path, batch="8")


def test_layers_split_over_chips_decode_as_fast_as_one(tmp_path: Path) -> None:
    assert _expected(tmp_path, pp="4", chips="4") == pytest.approx(_expected(tmp_path))
    assert _expected(tmp_path, tp="4", chips="4") > _expected(tmp_path)


def test_fewer_bits_decode_faster(tmp_path: Path) -> None:
    speeds = [_expected(tmp_path, weight_dtype=one) for one in ("fp16", "int8", "awq4-g128")]
    assert speeds == sorted(speeds)


def test_unpredictable_rows_have_a_reason(tmp_path: Path) -> None:
    bad = [
        {"chip": "Z9000"},
        {"chip": ""},
        {"batch": ""},
        {"batch": "many"},
        {"value": ""},
        {"value": "nan"},
        {"metric": "smiles_per_s"},
        {"model": "Unknown-7B", "layers": ""},
        {"model": "Unknown-7B", "params_b": ""},
        {"model": "Unknown-MoE", "active_params_b": "1.0"},
        {"weight_dtype": "ternary"},
        {"output_len": "", "metric": "output_tokens_per_s"},
        {"model": "Llama-3.1-405B", "batch": "max", "metric": "output_tokens_per_s"},
        {"tp": "zero"},
    ]
    table = predict_file(_write(tmp_path, ROW, *({**ROW, **one} for one in bad)))
    assert len(table.rows) == 1
    assert sum(table.skipped.values()) == len(bad)
    assert any("no chip" in reason for reason in table.skipped)
    assert "no batch" in table.skipped


def test_table_with_few_columns_is_accepted(tmp_path: Path) -> None:
    names = ("id", "model", "chip", "batch", "metric", "value", "input_len", "output_len")
    table = predict_file(_write(tmp_path, {name: ROW[name] for name in names}))
    assert table.rows[0].source == "x"


def test_empty_table_is_a_one_line_error(tmp_path: Path) -> None:
    file = tmp_path / "empty.csv"
    file.write_text("")
    with pytest.raises(BoundbyError, match="no table of measurements"):
        predict_file(str(file))
