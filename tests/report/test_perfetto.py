"""A trace for the Perfetto UI: every slice annotated, every kernel tied to its launch."""

import json
from collections import Counter
from typing import Any

import pytest

from boundby.report.perfetto import as_perfetto
from tests.diagnoses import EVIL, evil_diagnosis, full_diagnosis


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(as_perfetto(full_diagnosis()))["traceEvents"]
    return found


def test_every_slice_has_its_arguments(events: list[dict[str, Any]]) -> None:
    diagnosis = full_diagnosis()
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == len(diagnosis.timeline)
    for event, piece in zip(slices, diagnosis.timeline, strict=True):
        assert event["ts"] == pytest.approx(piece.start_ns / 1e3)
        assert event["dur"] == pytest.approx(piece.ns / 1e3)
        arguments = event["args"]
        assert arguments.keys() >= {"bound", "floor_us", "excess_us", "where", "cause"}
        assert arguments["bound"] == piece.bound
        if piece.floor_ns is not None:
            total = arguments["floor_us"] + arguments["excess_us"]
            assert total == pytest.approx(event["dur"])
    kernel = next(event for event in slices if event["args"].get("operator"))
    assert kernel["args"]["operator"] in {row.name for row in diagnosis.ops}
    idle = {event["name"] for event in slices if event["name"].startswith("idle")}
    assert idle <= {"idle: python", "idle: launch", "idle: sync", "idle: data"}
    assert {"idle: python", "idle: launch"} <= idle


def test_arrows_lead_from_launches_to_kernels(events: list[dict[str, Any]]) -> None:
    tied = [piece for piece in full_diagnosis().timeline if piece.flow is not None]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == len(tied)
    for number, end in ends.items():
        assert end["bp"] == "e"
        assert starts[number]["ts"] <= end["ts"]
        assert (starts[number]["pid"], end["pid"]) == (1, 2)


def test_lanes_are_named_and_none_share_a_track(events: list[dict[str, Any]]) -> None:
    lanes = {(piece.lane, piece.number) for piece in full_diagnosis().timeline}
    named = [event for event in events if event["name"] == "thread_name"]
    names = {lane if lane == "idle" else f"{lane} {number}" for lane, number in lanes}
    assert {event["args"]["name"] for event in named} == names
    tracks = Counter((event["pid"], event["tid"]) for event in named)
    assert set(tracks.values()) == {1}


def test_hostile_names_stay_strings() -> None:
    names = {event["name"] for event in json.loads(as_perfetto(evil_diagnosis()))["traceEvents"]}
    assert EVIL in names
