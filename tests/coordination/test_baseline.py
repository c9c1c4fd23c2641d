"""Which iterations are the baseline."""

import pytest

from perseus_ds.coordination.baseline import after_sweep, before_sweep


@pytest.mark.parametrize(("count", "before", "after"), [(8, 4, 4), (5, 3, 2), (2, 1, 1), (1, 1, 1)])
def test_half_comes_before_the_sweep_and_half_after_it_at_least_one_each(count, before, after):
    assert before_sweep(3, count, profiled=False) == range(3, 3 + before)
    assert after_sweep(40, count) == range(41, 41 + after), "in the first one the clocks settle"


def test_without_a_sweep_all_come_at_once():
    assert before_sweep(3, 8, profiled=True) == range(3, 11)
