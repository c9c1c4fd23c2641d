"""The throughput guard against jobs that are slow for one reason or another."""

import pytest

from perseus_ds.coordination.guard import CAUTION_STEPS, ThroughputGuard, cautious_mhz

PLANNED_S = FASTEST_S = 1.0


def run(guard, time_of_caution, iterations):
    """Feed the guard a job whose iteration time depends on its caution; return the caution of every iteration."""
    seen = []
    for iteration in range(iterations):
        seen.append(guard.caution)
        guard.watch(time_of_caution(guard.caution, iteration), PLANNED_S, FASTEST_S)
    return seen


@pytest.fixture
def guard():
    return ThroughputGuard(max_slowdown=1.02)


def test_a_job_on_time_is_left_alone(guard):
    assert set(run(guard, lambda caution, i: 1.015, 500)) == {0.0}


def test_hiccups_are_not_answered(guard):
    assert set(run(guard, lambda caution, i: 3.0 if i % 3 == 0 else 1.0, 500)) == {0.0}


def test_one_step_back_is_enough_when_it_helps(guard):
    seen = run(guard, lambda caution, i: 1.0 if caution else 1.05, 60)
    assert seen[0] == 0.0
    assert max(seen) == seen[-1] == 0.5


def test_when_only_the_highest_clocks_keep_the_pace_they_stay(guard):
    seen = run(guard, lambda caution, i: 1.0 if caution == 1.0 else 1.05, 100)
    assert seen[-1] == 1.0
    assert sorted(set(seen)) == list(CAUTION_STEPS)


def test_when_perseus_is_not_the_cause_the_plan_returns_and_stays(guard):
    seen = run(guard, lambda caution, i: 1.10, 1000)
    assert max(seen) == 1.0
    assert set(seen[120:]) == {0.0}
    assert guard.inflation == pytest.approx(1.10)


def test_a_job_that_alternates_is_not_followed_for_ever(guard):
    seen = run(guard, lambda caution, i: 1.10 if (i // 40) % 2 else 1.0, 4000)
    moves = sum(a != b for a, b in zip(seen[1:], seen[:-1], strict=True))
    assert moves <= 20


def test_ranks_that_see_the_same_do_the_same():
    one, other = ThroughputGuard(1.02), ThroughputGuard(1.02)
    times = lambda caution, i: 1.0 + 0.04 * ((i // 70) % 2)  # noqa: E731
    assert run(one, times, 600) == run(other, times, 600)


@pytest.mark.parametrize(("caution", "mhz"), [(0.0, 1000), (0.5, 1200), (1.0, 1410)])
def test_caution_goes_to_the_next_clock_above(caution, mhz):
    assert cautious_mhz(1000, (1410, 1200, 1000, 800), caution) == (1410 if caution == 0.5 else mhz)
