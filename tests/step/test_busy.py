import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundby.model.intervals import union
from boundby.step.device_busy import COPY, KERNEL, exposed


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def priorities(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    return np.array(values, np.int8)


def test_kernel_without_overlap_is_fully_exposed() -> None:
    shown = exposed(ints(0, 10), ints(5, 5), priorities(KERNEL, KERNEL))
    assert shown.tolist() == [5, 5]


def test_copy_overlapped_by_a_kernel_is_hidden() -> None:
    # A copy from 0 to 10, a kernel from 4 to 8: six of the copy's ten show.
    shown = exposed(ints(0, 4), ints(10, 4), priorities(COPY, KERNEL))
    assert shown.tolist() == [6, 4]


def test_overlapping_time_belongs_to_the_earlier_kernel() -> None:
    shown = exposed(ints(0, 5), ints(10, 10), priorities(KERNEL, KERNEL))
    assert shown.tolist() == [10, 5]


events = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(0, 3)), min_size=1, max_size=40
)


@given(events)
def test_exposed_times_add_up_to_busy_time(rows: list[tuple[int, int, int]]) -> None:
    starts, durations = ints(*(r[0] for r in rows)), ints(*(r[1] for r in rows))
    shown = exposed(starts, durations, priorities(*(r[2] for r in rows)))
    begins, ends = union(starts, durations)
    covered = {t for r in rows for t in range(r[0], r[0] + r[1])}
    assert shown.sum() == pytest.approx(len(covered))
    assert (ends - begins).sum() == len(covered)
    assert (shown <= durations).all()
