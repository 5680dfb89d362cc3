from __future__ import annotations

import importlib
import pkgutil

from boundby.model import assumptions
from boundby.model.assumptions.assumption import Assumption


def _records() -> dict[str, Assumption[float]]:
    return {
        f"{module.name}.{name}": one
        for module in pkgutil.iter_modules(assumptions.__path__)
        for name, one in vars(
            importlib.import_module(f"{assumptions.__name__}.{module.name}")
        ).items()
        if isinstance(one, Assumption)
    }


def test_every_value_lies_in_its_range() -> None:
    wrong = [name for name, one in _records().items() if not one.low <= one.value <= one.high]
    assert _records()
    assert not wrong


def test_every_number_states_its_origin() -> None:
    origins = ("Assumed", "Seen", "Measured", "Range seen", "Counted", "Derived", "Fitted")
    wrong = [name for name, one in _records().items() if not one.source.startswith(origins)]
    assert not wrong


def test_no_source_names_a_device_of_the_datasheets() -> None:
    from boundby.hardware.datasheet import chips

    names = {chip.name.split()[-1] for chip in chips()}
    wrong = [
        name
        for name, one in _records().items()
        if names & set((one.source + " " + one.meaning).replace(",", " ").split())
    ]
    assert not wrong
