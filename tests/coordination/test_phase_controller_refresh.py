"""The decision core, by histories: the baseline is refreshed among the plan's iterations."""

import pytest
from histories import SHORT, T_MIN_S, Job, phases
from made_up_plans import MICROBATCHES

from perseus_ds.coordination.events import (
    GuardStepped,
    IterationBegan,
    PhaseEntered,
    StragglerChanged,
)
from perseus_ds.coordination.orders import objective_order
from perseus_ds.coordination.phases import Phase
from perseus_ds.frontier.objectives import Slowdown
from perseus_ds.frontier.power_objectives import JobPower


def refreshed(job: Job) -> list[int]:
    """The iterations that ran at the default clocks although there are plans."""
    return [
        number
        for number, decision in enumerate(job.decisions)
        if not decision.plans and decision.phase in (Phase.ENFORCING, Phase.BASELINE) and number > 10
    ]


def test_the_baseline_is_refreshed_among_the_plan_s_iterations():
    job = Job(**SHORT, baseline_every=10).enforces()
    first = job.iteration - 1
    job.runs(32)
    assert refreshed(job) == [*range(first + 10, first + 15), *range(first + 25, first + 30)]
    began = {event.iteration: (event.phase, event.planned) for event in job.events(IterationBegan)}
    assert began[first + 10] == (Phase.ENFORCING, False), "here the clocks settle"
    assert {began[first + at] for at in range(11, 15)} == {(Phase.BASELINE, False)}
    assert began[first + 15] == (Phase.ENFORCING, True)
    assert [event.phase for event in job.events(PhaseEntered)][-1] is Phase.ENFORCING


@pytest.mark.parametrize("begins", range(8))
def test_who_becomes_slow_about_a_refresh_is_answered_as_soon_as_ever_and_ends_it(begins):
    """Seen on a busy host: late iterations asked for a refresh, and a GPU throttled in its midst."""
    job = Job(**SHORT, baseline_every=10).enforces()
    first = job.iteration - 1
    job.runs(6 + begins)
    onset = job.iteration
    job.runs(7, slow={(0, 0): 1.5})
    (change,) = job.events(StragglerChanged)
    assert (change.seen_iteration, change.iteration) == (onset + 1, onset + 3)
    assert all(decision.plans for decision in job.decisions[change.iteration :])
    assert set(refreshed(job)) <= set(range(first + 10, min(first + 15, change.iteration)))


@pytest.mark.parametrize(("baseline", "disturbed"), [(1.03, False), (1.0, True)])
def test_what_a_refresh_takes_is_no_fault_of_the_plan(baseline, disturbed):
    job = Job(**SHORT, baseline_every=16, max_slowdown=1.02).enforces()
    first, planned_s = job.iteration - 1, max(plan.time_s for plan in job.decisions[-1].plans)
    job.runs(15, time_s=1.009 * planned_s)
    job.runs(5, time_s=baseline * T_MIN_S)
    job.runs(12, time_s=1.03 * planned_s)
    assert refreshed(job)[:5] == [*range(first + 16, first + 21)]
    assert bool(job.events(GuardStepped)) == disturbed


def test_the_baseline_is_refreshed_sooner_where_the_plan_gets_late():
    job = Job(**SHORT, baseline_every=1000, max_slowdown=1.02).enforces()
    planned_s = max(plan.time_s for plan in job.decisions[-1].plans)
    job.runs(80)
    begin = job.iteration
    job.runs(30, time_s=1.015 * planned_s)
    assert [number for number in refreshed(job) if number >= begin][:1] != []
    assert not job.events(GuardStepped)


def test_a_baseline_is_refreshed_before_the_guard_s_first_step():
    """Seen on a virtual B200: GPUs had warmed up by 3 % since the sweep, and the guard raised clocks for it."""
    job = Job(**SHORT, baseline_every=1000, max_slowdown=1.02).enforces()
    planned_s, begin = max(plan.time_s for plan in job.decisions[-1].plans), job.iteration
    job.runs(40, time_s=1.03 * planned_s)
    assert [number for number in refreshed(job) if number >= begin]
    assert not job.events(GuardStepped)


@pytest.mark.parametrize(
    ("config", "rounds"),
    [
        ({"baseline_every": 0}, {}),
        ({"baseline_every": 10, "objective": {"power_cap_w": 900.0}}, {}),
        ({"baseline_every": 10}, {"slow": {(0, 1): 1.4}}),
        ({"baseline_every": 10}, {"microbatches": MICROBATCHES + 1}),
    ],
)
def test_the_baseline_is_not_refreshed_where_it_would_exceed_a_cap_or_tell_nothing(config, rounds):
    job = Job(**SHORT, **config).enforces()
    begin = job.iteration
    job.runs(9, **rounds)
    assert [number for number in refreshed(job) if number >= begin and "microbatches" not in rounds] == []
    assert Phase.BASELINE not in phases(job)[begin:]


def test_no_refresh_exceeds_an_ordered_power():
    job = Job(**SHORT, baseline_every=10).enforces()
    begin = job.iteration
    job.runs(1, orders={0: objective_order(JobPower(100.0))})
    job.runs(20)
    assert Phase.BASELINE not in phases(job)[begin:]
    job.runs(1, orders={0: objective_order(None)})
    job.runs(14)
    assert Phase.BASELINE in phases(job)[begin:]


def test_another_objective_is_compared_with_a_baseline_soon():
    job = Job(**SHORT, baseline_every=200).enforces()
    job.runs(100)
    begin = job.iteration
    job.runs(1, orders={0: objective_order(Slowdown(1.1))})
    job.runs(24)
    assert Phase.BASELINE in phases(job)[begin:]


def test_an_order_that_limits_the_power_ends_a_refresh():
    job = Job(**SHORT, baseline_every=10).enforces()
    job.runs(10)
    assert phases(job)[-1] is Phase.ENFORCING
    job.runs(1, orders={0: objective_order(JobPower(100.0))})
    job.runs(6)
    assert phases(job)[-7:].count(Phase.BASELINE) <= 2
    assert all(decision.plans for decision in job.decisions[-4:])
