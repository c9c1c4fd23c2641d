"""When the baseline is refreshed among the plan's iterations."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.config import Config
from perseus_ds.coordination.refresh import MEASURED, BaselineRefresh, RefreshStep

SETTLES, MEASURES = RefreshStep.SETTLES, RefreshStep.MEASURES


def steps(refresh: BaselineRefresh, allowed: list[bool]) -> dict[int, RefreshStep]:
    """Every iteration with a part in a refresh."""
    taken = {iteration: refresh.step(iteration, one) for iteration, one in enumerate(allowed)}
    return {iteration: step for iteration, step in taken.items() if step is not RefreshStep.NONE}


def begins(refresh: BaselineRefresh, allowed: list[bool]) -> list[int]:
    return [iteration for iteration, step in steps(refresh, allowed).items() if step is SETTLES]


def test_clocks_settle_in_one_iteration_and_the_next_four_are_measured():
    found = steps(BaselineRefresh(10), [False] * 5 + [True] * 30)
    assert found == {
        15: SETTLES,
        **dict.fromkeys(range(16, 20), MEASURES),
        30: SETTLES,
        **dict.fromkeys(range(31, 35), MEASURES),
    }


def test_the_first_refreshes_come_soon_and_each_later_one_after_twice_as_long():
    found = begins(BaselineRefresh(100), [True] * 500)
    assert found == [16, 16 + 5 + 32, 53 + 5 + 64, 122 + 5 + 100, 227 + 5 + 100, 332 + 5 + 100]


def test_another_plan_is_compared_as_soon_as_the_first():
    refresh = BaselineRefresh(100)
    steps(refresh, [True] * 300)
    refresh.soon()
    assert begins(refresh, [False] * 300 + [True] * 60) == [316, 353]


def test_what_is_due_while_something_else_happens_waits_for_it():
    allowed = [True] * 8 + [False] * 12 + [True] * 30
    assert begins(BaselineRefresh(10), allowed) == [28, 43], "after eight iterations that it is compared with"


def test_where_the_plan_gets_late_a_refresh_comes_eight_times_as_soon_at_the_most():
    refresh = BaselineRefresh(1000)
    steps(refresh, [True] * 600)
    refresh.wanted = True
    begun = [at for at in range(600, 1200) if refresh.step(at, allowed=True) is SETTLES]
    assert begun[0] == 600, "the latest ended long ago"
    assert np.diff(begun).min() >= 1000 / 8


def test_what_happens_during_a_refresh_ends_it():
    refresh = BaselineRefresh(10)
    assert steps(refresh, [True] * 12 + [False] * 5) == {10: SETTLES, 11: MEASURES}
    assert [iteration for iteration in range(20) if refresh.covers(iteration)] == [10, 11]


def test_after_a_refresh_that_was_cut_short_the_next_one_does_not_take_twice_as_long():
    assert begins(BaselineRefresh(100), [True] * 18 + [False] * 10 + [True] * 40) == [16, 16 + 5 + 16]


def test_no_refresh_where_none_is_wanted():
    assert steps(BaselineRefresh(0), [True] * 5000) == {}


def test_a_refresh_knows_its_own_iterations():
    refresh = BaselineRefresh(4)
    steps(refresh, [True] * 6)
    assert [iteration for iteration in range(12) if refresh.covers(iteration)] == [4, 5, 6, 7, 8]
    assert not BaselineRefresh(4).covers(0)


@given(st.lists(st.booleans(), min_size=1, max_size=300), st.integers(1, 40))
def test_between_two_of_them_the_plan_has_as_many_iterations_as_configured(allowed, every):
    found = begins(BaselineRefresh(every), allowed)
    assert all(later - earlier >= min(every, 16) + 1 for earlier, later in pairwise(found))


def test_as_configured_it_takes_a_thousandth_of_the_iterations_once_gpus_are_warm():
    every = Config(run_dir="unused").baseline_every
    taken = steps(BaselineRefresh(every), [True] * 200_000)
    soon = sum(iteration < 2 * every for iteration in taken)
    assert soon <= 10 * (1 + MEASURED)
    assert 0 < len(taken) - soon <= 0.001 * 190_000
