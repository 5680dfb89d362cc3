"""The list of public programs."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("programs_list")


def test_every_program_can_be_looked_up(listed: ModuleType) -> None:
    assert len({program.name for program in listed.PROGRAMS}) == len(listed.PROGRAMS)
    for program in listed.PROGRAMS:
        assert re.fullmatch("[0-9a-f]{40}", listed.COMMITS[program.repository]), program.name
        assert re.compile(program.step)
        assert all(callable(make) for make, _ in program.data)


def test_programs_start_beside_their_script_unless_a_folder_is_given(listed: ModuleType) -> None:
    starts = {program.name: program.start for program in listed.PROGRAMS}
    assert starts["mnist"] == "mnist"
    assert starts["lightning-hydra-template"] == "."
