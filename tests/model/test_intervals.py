"""Coverage beside counting every moment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boundby.model.intervals import Coverage, union

spans = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=20)


@given(spans, spans)
def test_overlapping_intervals_are_counted_once(
    covering: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    starts = np.array([start for start, _ in covering], np.int64)
    durations = np.array([length for _, length in covering], np.int64)
    low = np.array([start for start, _ in asked], np.int64)
    high = np.array([start + length for start, length in asked], np.int64)
    moments = {at for start, length in covering for at in range(start, start + length)}
    expected = [len(moments & set(range(start, start + length))) for start, length in asked]
    assert Coverage(starts, durations).between(low, high).tolist() == expected


def test_touching_intervals_are_merged() -> None:
    begins, ends = union(np.array([10, 0, 30], np.int64), np.array([10, 10, 5], np.int64))
    assert begins.tolist() == [0, 30]
    assert ends.tolist() == [20, 35]
