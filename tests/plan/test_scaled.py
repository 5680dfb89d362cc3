"""A saved diagnosis on another chip."""

from pathlib import Path

import msgspec
import pytest

from boundby.model import Machine, store
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.model.rows import OpRow
from boundby.plan import chips, requests
from tests.diagnoses import bare_diagnosis

WALL_NS = 10e6
OPS = [
    OpRow(name="mm", op_class="contraction", dtype="bfloat16", count=1, ns=4e6, bound="compute"),
    OpRow(name="add", op_class="elementwise", dtype="float32", count=1, ns=3e6, bound="memory"),
    OpRow(name="fill", op_class="elementwise", dtype="float32", count=1, ns=1e6, bound="small"),
]


def _saved(path: Path, device: str = "NVIDIA H200") -> str:
    bare = bare_diagnosis()
    diagnosis: Diagnosis = msgspec.structs.replace(
        bare,
        machine=Machine(device=device, kind="cuda", memory_bytes=141 * 10**9),
        step=msgspec.structs.replace(bare.step, wall_ns=WALL_NS),
        ops=OPS,
    )
    store.write(diagnosis, path)
    return str(path)


def test_a_step_on_its_own_chip_takes_as_long_as_measured(tmp_path: Path) -> None:
    plan = requests.plan_saved(_saved(tmp_path / "step.json"), "h200", 1)
    assert plan.step_ns.expected == pytest.approx(WALL_NS)


def test_each_operator_scales_with_the_rate_that_bounds_it(tmp_path: Path) -> None:
    """On a B200: 4 ms by the matrix rates, 3 ms by the bandwidths; 1 ms and 2 ms of gaps stay."""
    plan = requests.plan_saved(_saved(tmp_path / "step.json"), "b200", 1)
    old, new = chips.find("h200"), chips.find("b200")
    unit = "matmul.bfloat16"
    expected = 4e6 * old.sustained_rate(unit) / new.sustained_rate(unit)
    expected += 3e6 * old.memory_rate / new.memory_rate + 1e6 + 2e6
    assert plan.step_ns.expected == pytest.approx(expected)
    assert sum(term.exposed_ns for term in plan.terms) == pytest.approx(expected)


def test_scaling_to_more_chips_notes_the_missing_gradient_sum(tmp_path: Path) -> None:
    plan = requests.plan_saved(_saved(tmp_path / "step.json"), "h200", 8)
    assert plan.chips == 8
    assert any("the sum of gradients is not included" in note for note in plan.notes)


def test_cpu_step_is_a_one_line_error(tmp_path: Path) -> None:
    path = _saved(tmp_path / "step.json", "Two-core CPU")
    with pytest.raises(BoundbyError, match="not in the table of accelerators"):
        requests.plan_saved(path, "b200", 1)
