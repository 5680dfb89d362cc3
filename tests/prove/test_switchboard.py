"""Switching several fixes on a live program."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.fixes import FIXES  # noqa: E402
from boundby.fixes.switch import Program  # noqa: E402
from boundby.prove.switchboard import Switchboard  # noqa: E402


def test_a_switch_is_made_for_the_program_without_other_fixes() -> None:
    """Compiled in one mode, a module has nothing left to compile: another mode must not see it."""
    module = torch.nn.Linear(4, 4)
    names = ("compile", "compile:max-autotune")
    fixes = {one.name: one for one in FIXES if one.name in names}
    board = Switchboard(Program(torch=torch, models=[module]), fixes)
    for name in names:
        board.set((name,))
        assert module._compiled_call_impl is not None
        assert board.has_changed(name)
    board.set(())
    assert module._compiled_call_impl is None
