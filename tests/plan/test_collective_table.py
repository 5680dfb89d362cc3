"""Rows of collective micro-benchmarks: published figures of whole nodes, and bad rows."""

import csv
from pathlib import Path

import pytest

from boundby.plan.table import predict_file

ROW = {
    "source": "x",
    "chips_total": "8",
    "chip": "H100-SXM-80GB",
    "nodes": "1",
    "interconnect": "",
    "collective": "all_reduce",
    "message_bytes": "8589934592",
    "algbw_gbps": "270",
}


def _rate(tmp_path: Path, **changed: str) -> float:
    return _predict(tmp_path, {**ROW, **changed})[0]


def _predict(tmp_path: Path, *rows: dict[str, str]) -> list[float]:
    file = tmp_path / "collectives.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return [row.predicted.expected for row in predict_file(str(file)).rows]


def test_large_messages_in_a_node_reach_the_published_rates(tmp_path: Path) -> None:
    """nccl-tests on eight H100: bus bandwidth 480 with the sum in the switch, 362 gathering."""
    assert _rate(tmp_path) * 2 * 7 / 8 == pytest.approx(480, rel=0.05)
    assert _rate(tmp_path, collective="all_gather") * 7 / 8 == pytest.approx(362, rel=0.05)


def test_named_nics_limit_traffic_between_nodes(tmp_path: Path) -> None:
    fast = _rate(tmp_path, nodes="2", chips_total="16", interconnect="NVLink + 8x400 Gb/s IB")
    slow = _rate(tmp_path, nodes="2", chips_total="16", interconnect="NVLink + 8x100 Gb/s IB")
    assert fast > 2 * slow


def test_rack_is_one_scale_up_domain(tmp_path: Path) -> None:
    rack = _rate(tmp_path, chip="GB200-192GB", nodes="18", chips_total="72")
    assert rack > 5 * _rate(tmp_path, nodes="18", chips_total="72")


def test_two_chips_of_a_mesh_use_one_link(tmp_path: Path) -> None:
    """MI300X: seven links a chip, of which a pair has one."""
    pair = _rate(tmp_path, chip="MI300X", chips_total="2", collective="all_gather")
    whole = _rate(tmp_path, chip="MI300X", chips_total="8", collective="all_gather")
    assert pair / 2 == pytest.approx(whole * 7 / 8 / 7, rel=0.05)


def test_rows_that_cannot_be_predicted_are_counted(tmp_path: Path) -> None:
    bad = [{"collective": "gossip"}, {"algbw_gbps": ""}, {"nodes": "3"}, {"chips_total": "1"}]
    assert len(_predict(tmp_path, ROW, *({**ROW, **one} for one in bad))) == 1
