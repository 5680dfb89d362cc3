"""How much time is kept for processes of the script."""

import pytest

from boundby.prove.process_time import needed_s, reserved_s


def test_time_is_reserved_for_start_fixes_that_fit_before_the_final_check() -> None:
    # Each takes two processes, and so does the final check.
    enough = needed_s(6, 10.0)
    assert reserved_s(3, 10.0, enough) == pytest.approx(needed_s(4, 10.0))
    assert reserved_s(1, 10.0, enough) == pytest.approx(needed_s(2, 10.0))


def test_unused_time_is_not_reserved() -> None:
    assert reserved_s(2, 10.0, needed_s(3, 10.0)) == 0.0
    assert reserved_s(0, 10.0, 100.0) == 0.0
