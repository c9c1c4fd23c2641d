"""The throughput guard against jobs that are slow for one reason or another."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perseus_ds.simulator
from perseus_ds.coordination.guard import CAUTION_STEPS, ThroughputGuard, cautious_mhz
from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.observed import at_highest
from perseus_ds.frontier.plan import instruction_points
from perseus_ds.pipeline.observed import with_tail
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
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
    seen = run(guard, lambda caution, i: 1.0 if caution == 1.0 else 1.05, 90)
    assert seen[-1] == 1.0
    assert sorted(set(seen)) == list(CAUTION_STEPS)


def test_the_baseline_s_pace_is_back_within_30_iterations_however_far_the_plan_is_off(guard):
    guard.inflation = 1.09  # the baseline against what is predicted at the highest clocks
    off = {0.0: 1.21, 0.5: 1.15, 1.0: 1.09}
    seen = run(guard, lambda caution, i: off[caution], 31)
    assert off[seen[30]] <= 1.02 * guard.inflation


def test_it_says_when_its_caution_changes(guard):
    for _ in range(300):
        before = guard.caution
        says = guard.watch(1.0 if guard.caution else 1.05, PLANNED_S, FASTEST_S)
        assert says == (guard.caution != before)


def test_when_perseus_is_not_the_cause_the_plan_returns_and_stays(guard):
    seen = run(guard, lambda caution, i: 1.10, 1000)
    assert max(seen) == 1.0
    assert set(seen[120:]) == {0.0}
    assert guard.inflation == pytest.approx(1.10)


def refresh(guard, time_s):
    for _ in range(5):  # the clocks settle in the first one
        guard.hear_baseline(time_s, FASTEST_S)


def test_a_plan_that_gets_slower_as_the_baseline_does_is_left_alone(guard):
    """GPUs get warm at their power limit, and hold lower clocks, with and without Perseus."""
    seen = []
    for warmed in (0.0, 0.018, 0.036, 0.05):
        seen += run(guard, lambda caution, i, late=1.001 + warmed: late, 100)
        refresh(guard, 1.005 + warmed)
    assert set(seen) == {0.0}
    assert guard.inflation == pytest.approx(1.055)


def test_a_refresh_of_other_plans_is_not_mixed_with_the_one_before(guard):
    run(guard, lambda caution, i: 1.05, 30)
    refresh(guard, 1.05)
    guard.adopt(1.0)
    run(guard, lambda caution, i: 1.0, 30)
    for _ in range(2):  # a straggler ends this refresh early
        guard.hear_baseline(1.0, FASTEST_S)
    assert guard.inflation == 1.0


def test_a_plan_that_is_late_while_the_baseline_is_not_is_not_kept(guard):
    run(guard, lambda caution, i: 1.015, 100)
    refresh(guard, 1.0)
    assert max(run(guard, lambda caution, i: 1.03, 30)) > 0.0


def test_a_delay_of_the_baseline_alone_excuses_no_plan(guard):
    run(guard, lambda caution, i: 1.0, 100)
    refresh(guard, 1.3)
    assert max(run(guard, lambda caution, i: 1.05, 30)) > 0.0


def test_it_asks_for_a_baseline_before_it_raises_clocks_and_once_for_each_half_of_what_is_allowed(guard):
    asked, raised = [], []
    for iteration in range(400):
        late = 1.0 + 0.0001 * iteration  # two per cent in 200 iterations
        guard.watch(late, PLANNED_S, FASTEST_S)
        raised.append(guard.caution)
        if guard.wants_baseline:
            asked.append(iteration)
            refresh(guard, late)
            assert not guard.wants_baseline
    assert max(raised) == 0.0
    assert 3 <= len(asked) <= 4
    assert asked[0] > 100


def test_a_pace_that_comes_back_is_asked_for_again(guard):
    run(guard, lambda caution, i: 1.015, 100)
    guard.inflation = 1.2
    refresh(guard, 1.01)
    assert guard.inflation == pytest.approx(1.01)


def changes(guard, time_of_caution, iterations):
    """Return at which iterations the caution is another one."""
    seen = run(guard, time_of_caution, iterations)
    return [at for at in range(1, iterations) if seen[at] != seen[at - 1]]


def test_each_way_back_into_the_plan_takes_twice_the_calm_of_the_one_before(guard):
    # A window of 12 to see it, 64 calm iterations to try again; two settle after every change.
    assert changes(guard, lambda caution, i: 1.0 if caution else 1.05, 500) == [12, 78, 92, 222, 236, 494]


def test_the_highest_clocks_are_left_when_they_help_after_as_much_calm(guard):
    found = changes(guard, lambda caution, i: 1.0 if caution == 1.0 else 1.05, 260)
    assert found == [12, 26, 92, 106, 120, 250]


def test_at_the_highest_clocks_a_window_is_enough_to_acquit(guard):
    assert changes(guard, lambda caution, i: 1.10, 500) == [12, 26, 40]


def test_the_calm_that_is_asked_for_has_a_bound(guard):
    found = changes(guard, lambda caution, i: 1.0 if caution else 1.05, 30_000)
    assert [back - up for up, back in zip(found[::2], found[1::2], strict=False)][-2:] == [4098, 4098]


@pytest.mark.parametrize(("time_s", "caution"), [(1.0199, 0.0), (1.0201, 0.5)])
def test_more_than_the_slowdown_allowed_is_too_much(guard, time_s, caution):
    assert run(guard, lambda *_: time_s, 20)[-1] == caution


def test_a_restart_forgets_what_was_seen(guard):
    run(guard, lambda *_: 1.05, 11)
    guard.restart()
    assert changes(guard, lambda caution, i: 1.0 if caution else 1.05, 30) == [14]


def test_a_job_that_alternates_is_not_followed_for_ever(guard):
    seen = run(guard, lambda caution, i: 1.10 if (i // 40) % 2 else 1.0, 4000)
    moves = sum(a != b for a, b in zip(seen[1:], seen[:-1], strict=True))
    assert moves <= 20


def test_a_guard_follows_its_own_job_whatever_other_guards_see():
    def wavering_s(i):
        return 1.0 + 0.04 * ((i // 70) % 2)

    alone = run(ThroughputGuard(1.02), lambda caution, i: wavering_s(i), 600)
    guard, stranger, seen = ThroughputGuard(1.02), ThroughputGuard(1.02), []
    for i in range(600):
        seen.append(guard.caution)
        stranger.watch(1.1, PLANNED_S, FASTEST_S)
        guard.watch(wavering_s(i), PLANNED_S, FASTEST_S)
    assert seen == alone
    assert set(seen) == set(CAUTION_STEPS)


@pytest.mark.parametrize(
    ("planned_mhz", "caution", "mhz"),
    [
        pytest.param(1000, 0.0, 1000, id="no caution: the plan"),
        pytest.param(1000, 0.5, 1410, id="half way lies at 1205, the next above is the highest"),
        pytest.param(800, 0.5, 1200, id="half way lies at 1105"),
        pytest.param(1000, 1.0, 1410, id="all the way"),
        pytest.param(1410, 0.5, 1410, id="nothing lies above the highest"),
    ],
)
def test_caution_goes_to_the_next_clock_above(planned_mhz, caution, mhz):
    assert cautious_mhz(planned_mhz, (1410, 1200, 1000, 800), caution) == mhz


@pytest.mark.parametrize(("deviation_s", "disturbed"), [(0.0, True), (0.06, False)])
def test_iterations_that_differ_as_the_plan_knows_are_no_slowdown(guard, deviation_s, disturbed):
    chance, seen = np.random.default_rng(0), set()
    for _ in range(2000):
        guard.watch(chance.normal(1.0, 0.06), PLANNED_S, FASTEST_S, deviation_s)
        seen.add(guard.caution)
    assert (seen != {0.0}) == disturbed


def test_a_slowdown_beyond_what_iterations_differ_by_is_answered_as_ever(guard):
    chance = np.random.default_rng(0)
    for _ in range(30):
        guard.watch(chance.normal(1.0 if guard.caution else 1.12, 0.06), PLANNED_S, FASTEST_S, 0.06)
    assert guard.caution > 0.0


@pytest.fixture(scope="module")
def problem():
    return Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), 83.64)


class TestPlantedHostWork:
    """A pipeline whose host has other work between instructions: its slack hides that, and a plan spends the slack."""

    @staticmethod
    def time_s(problem, frequency_mhz, iteration, host_s):
        """Return how long an iteration takes with work of the host before every fourth instruction or so."""
        times_s, _ = instruction_points(problem, frequency_mhz)
        chance = np.random.default_rng(iteration)
        return problem.dag.makespan(times_s + host_s * (chance.random(times_s.size) < 0.25))

    @pytest.mark.parametrize("host_s", [0.02, 0.1])
    def test_the_plan_is_left_until_the_baseline_s_pace_is_back(self, problem, host_s):
        highest = at_highest(problem).clocks_of(problem.dag.instructions)
        baseline_s = np.median([self.time_s(problem, highest, -i % 997, host_s) for i in range(1, 9)])
        traced = replace(problem, dag=with_tail(problem.dag, baseline_s - at_highest(problem).time_s))
        frontier = solve(traced)
        plan = frontier.plan(frontier.t_min_s)
        planned = plan.clocks_of(problem.dag.instructions)
        supported = tuple(sorted(set(highest.tolist() + planned.tolist()), reverse=True))
        guard, took_s = ThroughputGuard(max_slowdown=1.02), []
        for iteration in range(42):
            mhz = np.array([cautious_mhz(one, supported, guard.caution) for one in planned.tolist()])
            nearest = [
                min((p.frequency_mhz for p in problem.profile.curve(problem.keys[row])), key=lambda at: abs(at - one))
                for row, one in zip(problem.curve_of, mhz, strict=True)
            ]
            took_s.append(self.time_s(problem, np.array(nearest), 1000 + iteration, host_s))
            guard.watch(took_s[-1], plan.time_s, at_highest(traced).time_s)
        assert np.median(took_s[:12]) > 1.02 * plan.time_s, "the fault: the plan is not kept"
        assert np.median(took_s[30:]) <= 1.02 * baseline_s
