"""The plans of one condition: which one an iteration time stands for."""

from dataclasses import replace

import pytest

from perseus_ds.coordination.plan_set import FrequencyPlan, PlanSet
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind


def plans(*times_s: float) -> tuple[FrequencyPlan, ...]:
    return tuple(FrequencyPlan(time_s, 100.0 + time_s, 90.0, ({}, {}), 0) for time_s in times_s)


FOUND = PlanSet((1.0, 1.0), 10.0, 13.0, 10.0, plans(10.0, 11.0, 13.2), plans(13.1, 14.0, 16.0))


@pytest.mark.parametrize(("t_s", "time_s"), [(9.0, 10.0), (12.9, 11.0), (13.99, 13.2), (14.0, 14.0), (99.0, 16.0)])
def test_the_slowest_plan_within_a_time_may_lie_beyond_the_frontier(t_s, time_s):
    assert FOUND.point(t_s).time_s == time_s


def test_beyond_the_frontier_is_what_is_slower_than_all_along_it():
    assert [plan.time_s for plan in FOUND.all_points] == [10.0, 11.0, 13.2, 14.0, 16.0]


def test_up_to_t_star_no_plan_is_there_for_its_power():
    """With jittering clocks the last plan along the frontier may be faster than T*; a straggler asks for T*."""
    short = replace(FOUND, points=plans(10.0, 11.0), beyond=plans(12.5, 14.0))
    assert short.point(13.0).time_s == 11.0
    assert [plan.time_s for plan in short.all_points] == [10.0, 11.0, 14.0]


def test_only_an_order_leads_beyond_t_star():
    assert FOUND.t_opt_s(99.0) == 13.0
    assert FOUND.t_opt_s(99.0, ordered_s=14.0) == 14.0


def test_a_plan_tells_a_stage_when_its_clocks_are_to_come_and_writes_it_to_its_file():
    forward, backward = Operation(Kind.FORWARD, 0), Operation(Kind.BACKWARD, 0)
    clocks_mhz = ({forward: 1400, backward: 900}, {forward: 1400, backward: 1400})
    plan = FrequencyPlan(2.0, 500.0, 450.0, clocks_mhz, 2, 0.01, aims_s=({backward: 0.004}, {}))
    assert [plan.aims_of(stage) for stage in (0, 1)] == [(0.0, 0.004), (0.0, 0.0)]
    assert plan.to_json()["aims_s"] == [0.0, 0.004, 0.0, 0.0], "in the order of frequency_mhz"
    punctual = replace(plan, aims_s=())
    assert (punctual.aims_of(1), punctual.to_json()["aims_s"]) == ((), [])
