"""The examples of docs/extending.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import boundby
from boundby import faults
from boundby.model import OpCall
from boundby.ops import registry
from tests.faults.step_models import step_model_of
from tests.timelines import US, Scene, tensor

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


def example(heading: str) -> str:
    """The Python code below a heading."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(code)


def test_example_of_a_fault_is_found_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FAULTS", [])
    exec(example("A fault"), {"__name__": "plugin"})
    scene = Scene(end=1000)
    scene.on_host(0, 400, call=OpCall(name="mylib::check", args=()))
    scene.on_host(400, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    (finding,) = faults.find([step_model_of(scene.timeline())])
    assert finding.fault == "checks-in-step"
    assert finding.saving_ns.low == 0
    assert finding.saving_ns.expected == pytest.approx(400 * US, rel=0.05)


def test_example_of_a_formula_costs_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FORMULAS", dict(registry._FORMULAS))
    names: dict[str, Any] = {"__name__": "plugin", "boundby": boundby}
    exec(example("An operator formula"), names)
    cost = registry.cost(OpCall(name="mylib::scale", args=(tensor(10),)))
    assert cost is not None
    assert (cost.bytes_read, cost.bytes_written) == (tensor(10).bytes, tensor(10).bytes)


def test_every_file_that_is_named_exists() -> None:
    root = PAGE.parents[1]
    text = PAGE.read_text()
    named = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", text)
    placeholders = ("NAME", "FORMAT")
    real = [path for path in named if not any(word in path for word in placeholders)]
    assert real
    assert [path for path in real if not (root / path).exists()] == []
