import io

import msgspec
from rich.console import Console

from boundby.model import Machine
from boundby.report.machine import MachineReport
from tests.machines import round_machine


def rendered(machine: Machine) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(MachineReport(machine))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def test_measured_roofs_are_beside_datasheet_values() -> None:
    machine = round_machine()
    roofs = [
        msgspec.structs.replace(roof, datasheet=2e15) if roof.name == "matmul.bfloat16" else roof
        for roof in machine.roofs
    ]
    text = rendered(msgspec.structs.replace(machine, roofs=roofs))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("bfloat16")]
    assert line.split()[1:6] == ["1.00", "PFLOP/s", "2.00", "PFLOP/s", "50%"]


def test_no_heading_is_cut_and_no_column_is_empty() -> None:
    machine = round_machine()
    assert "datasheet" not in rendered(machine)
    roofs = [
        msgspec.structs.replace(roof, datasheet=2 * roof.value, note="continuous work, at its best")
        for roof in machine.roofs
    ]
    sustained = [
        msgspec.structs.replace(roof, name=f"{roof.name}.sustained")
        for roof in machine.roofs
        if roof.name.startswith("matmul.")
    ]
    text = rendered(msgspec.structs.replace(machine, roofs=roofs + sustained))
    heading = next(line for line in text.splitlines() if line.startswith("roof"))
    assert "best at" in heading and "…" not in text
    assert all(f" {one} " in heading for one in ("measured", "sustained", "datasheet", "of it"))


def test_meaning_of_the_roofs_is_stated() -> None:
    text = rendered(round_machine())
    assert "memory-bound up to 80 operations per element" in text
    assert "compute-bound from 200 rows" in text
    assert "25.0 M FLOPs of this device" in text
    assert "8.00 us" in text


def test_quick_measurement_and_warnings_are_stated() -> None:
    machine = msgspec.structs.replace(round_machine(), quick=True, warnings=["odd clock"])
    text = rendered(machine)
    assert "quick measurement with wider error" in text
    assert "! odd clock" in text


def test_slow_dtype_is_compute_bound_with_any_number_of_rows() -> None:
    machine = round_machine()
    roofs = [
        msgspec.structs.replace(roof, value=2.5e8) if roof.name == "matmul.bfloat16" else roof
        for roof in machine.roofs
    ]
    text = rendered(msgspec.structs.replace(machine, roofs=roofs))
    assert "compute-bound with any number of rows" in text
    assert "bfloat16 0.00" in text
