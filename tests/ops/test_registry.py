import subprocess
import sys
from typing import get_args

import pytest

from boundby import ops as costs
from boundby.model import Cost, OpCall
from boundby.ops import registry
from tests.ops.builders import call, t

ARGUMENTS = [
    (),
    (None,) * 12,
    (t(4, 4),) * 8,
    (t(2, 3, 8, 8), t(4, 3, 3, 3), None, (1, 1), (1, 1), (1, 1), 1),
    (t(2, 4, 8, 8),) * 3 + (0.0, True),
    ((t(4), t(8)),) * 6,
    (t(4), 1, t(4, dtype="int64"), t(4)),
    (t(), 0, False),
    (t(0), t(0)),
    ("text", 1.5, True),
    (t(4, dtype=""),) * 4,
]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FORMULAS", dict(registry._FORMULAS))


@pytest.mark.usefixtures("scratch")
def test_a_user_registers_a_formula_in_five_lines() -> None:
    @costs.formula("mylib::scale", op_class="elementwise")
    def scale(call: OpCall) -> Cost:
        (x,) = call.tensors
        flops: dict[str, float] = {"vector.float32": x.elements}
        return Cost(flops=flops, bytes_read=x.bytes, bytes_written=x.bytes)

    found = costs.cost(call("mylib::scale", t(10)))
    assert found == Cost(flops={"vector.float32": 10}, bytes_read=40, bytes_written=40)
    assert costs.op_class("mylib::scale") == "elementwise"
    assert costs.cost(call("mylib::scale")) is None  # nothing recorded: unknown


def test_duplicate_registration_raises() -> None:
    with pytest.raises(ValueError, match="aten::mm has a cost formula already"):
        costs.formula("aten::mm", op_class="contraction")(lambda _: None)
    with pytest.raises(ValueError, match="new::op has a cost formula already"):
        costs.formula("new::op", "new::op", op_class="contraction")(lambda _: None)
    with pytest.raises(ValueError, match="triton_"):
        costs.family("triton_", op_class=lambda _: "elementwise")(lambda _: None)


def test_operator_without_formula_is_unknown() -> None:
    assert costs.find("mylib::mystery") is None
    assert costs.op_class("mylib::mystery") is None
    assert costs.cost(call("mylib::mystery", t(10))) is None


@pytest.mark.parametrize("name", costs.names())
def test_every_formula_meets_the_contract(name: str) -> None:
    found = costs.find(name)
    assert found is not None
    assert found.op_class in get_args(costs.OpClass)
    assert found.function.__doc__
    for arguments in ARGUMENTS:
        result = costs.cost(OpCall(name=name, args=arguments))
        if result is not None:
            assert result.bytes_read >= 0
            assert result.bytes_written >= 0
            assert all(amount >= 0 for amount in result.flops.values())
            assert all(unit.split(".")[0] in ("matmul", "vector") for unit in result.flops)


def test_contractions_have_flops_and_movement_has_none() -> None:
    square = t(4, 4)
    assert costs.cost(call("mm", square, square)).total_flops > 0  # type: ignore[union-attr]
    for name in ("copy_", "zero_", "sort"):
        assert costs.cost(call(name, square, square)).total_flops == 0  # type: ignore[union-attr]


def test_importing_costs_imports_no_framework() -> None:
    program = "import sys, boundby.ops; print({'torch', 'jax'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout.strip() == "set()"


@pytest.mark.usefixtures("scratch")
def test_a_users_formula_that_raises_is_collected_with_its_traceback() -> None:
    @costs.formula("mylib::scale", op_class="elementwise")
    def scale(call: OpCall) -> Cost:
        raise ValueError("no such axis")

    with costs.failures.collected() as failures:
        assert costs.cost(call("mylib::scale", t(10))) is None
    assert list(failures) == ["mylib::scale"]
    assert "in scale" in failures["mylib::scale"]
    with pytest.raises(ValueError, match="no such axis"):
        costs.cost(call("mylib::scale", t(10)))
