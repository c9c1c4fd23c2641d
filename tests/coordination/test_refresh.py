"""When the baseline is refreshed among the plan's iterations."""

from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.config import Config
from perseus_ds.coordination.refresh import BaselineRefresh, RefreshStep


def steps(refresh: BaselineRefresh, allowed: list[bool]) -> dict[int, RefreshStep]:
    """Every iteration with a part in a refresh."""
    taken = {iteration: refresh.step(iteration, one) for iteration, one in enumerate(allowed)}
    return {iteration: step for iteration, step in taken.items() if step is not RefreshStep.NONE}


def test_clocks_settle_in_one_iteration_and_the_next_is_measured():
    settles, measures = RefreshStep.SETTLES, RefreshStep.MEASURES
    found = steps(BaselineRefresh(10), [False] * 5 + [True] * 30)
    assert found == {15: settles, 16: measures, 25: settles, 26: measures}


def test_what_is_due_while_something_else_happens_waits_for_it():
    allowed = [True] * 8 + [False] * 12 + [True] * 11
    assert list(steps(BaselineRefresh(10), allowed)) == [20, 21, 30]


def test_no_refresh_where_none_is_wanted():
    assert steps(BaselineRefresh(0), [True] * 5000) == {}


def test_a_refresh_knows_its_own_iterations():
    refresh = BaselineRefresh(4)
    steps(refresh, [True] * 6)
    assert [iteration for iteration in range(12) if refresh.covers(iteration)] == [4, 5]
    assert not BaselineRefresh(4).covers(0)


@given(st.lists(st.booleans(), min_size=1, max_size=300), st.integers(3, 40))
def test_it_never_takes_more_than_two_of_as_many_iterations(allowed, every):
    assert len(steps(BaselineRefresh(every), allowed)) <= 2 * (len(allowed) // every + 1)


def test_as_configured_it_takes_at_most_a_thousandth_of_the_iterations():
    taken = steps(BaselineRefresh(Config(run_dir="unused").baseline_every), [True] * 100_000)
    assert 0 < len(taken) <= 100
