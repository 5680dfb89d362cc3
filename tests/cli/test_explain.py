"""boundby explain: faults, and the fixes that prove applies."""

import pytest
from click.testing import CliRunner

from boundby.cli import explain
from boundby.faults import FAULTS
from boundby.model.errors import BoundbyError


def explained(*words: str) -> str:
    done = CliRunner().invoke(explain.command, [*words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_every_fault_and_every_fix_is_listed() -> None:
    text = explained()
    for fault in FAULTS:
        assert f"  {fault.id} " in text
        for fix in fault.fixes:
            assert f"  {fix.name} " in text


def test_fault_lists_its_fixes() -> None:
    text = explained("unfused-optimizer")
    assert text.startswith("unfused-optimizer (overhead)")
    assert "What boundby prove applies\n    fused  torch.optim.AdamW(..., fused=True)" in text
    assert "needs a change in the script" in explained("batch-too-small")


def test_fix_shows_its_change_and_faults() -> None:
    text = explained("compile:max-autotune")
    assert "boundby prove --try compile:max-autotune" in text
    assert 'model = torch.compile(model, mode="max-autotune")' in text
    assert "far-from-roof" in text
    assert "longer to start" in text


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("float32", "did you mean float32-products or float32-activations"),
        ("unfused-optimiser", "did you mean unfused-optimizer"),
        ("qqqq", "called qqqq: boundby explain lists them"),
    ],
)
def test_an_unknown_name_suggests_similar_ones(name: str, near: str) -> None:
    with pytest.raises(BoundbyError) as raised:
        explained(name)
    assert near in str(raised.value)
