"""The decision core, by histories: orders, and the plans that answer them."""

import pytest
from histories import SHORT, T_MIN_S, Job
from made_up_plans import route_of

from perseus_ds.coordination.events import (
    ObjectiveChanged,
    OrderPlaced,
    PlansAdopted,
)
from perseus_ds.coordination.orders import ORDER_KINDS, Order, OrderKind, objective_order
from perseus_ds.coordination.requests import (
    RetraceIteration,
    RoundPlan,
)
from perseus_ds.frontier.objectives import MinTime, Slowdown
from perseus_ds.frontier.power_objectives import JobPower


def test_an_ordered_objective_is_pursued_at_the_next_round_and_no_longer_than_ordered():
    job = Job(**SHORT).enforces()
    points = route_of((1.0, 1.0)).points
    assert job.decisions[-1].plans[0] is points[0]
    job.runs(1, orders={3: objective_order(Slowdown(1.2))})
    begun = job.iteration
    job.runs(2)
    (changed,) = job.events(ObjectiveChanged)
    assert changed.iteration == begun + 1
    before, after = changed.expected
    assert before.time_s == pytest.approx(T_MIN_S)
    assert T_MIN_S < after.time_s <= 1.2 * T_MIN_S
    assert after.power_w < before.power_w
    assert [plan.time_s for plan in job.decisions[-1].plans] == [
        max(p.time_s for p in points if p.time_s <= 1.2 * T_MIN_S)
    ] * 2
    job.runs(1, orders={0: objective_order(None)})
    job.runs(2)
    assert job.decisions[-1].plans[0] is points[0]
    assert job.events(ObjectiveChanged)[-1].objective is None


def test_a_point_between_two_plans_is_asked_for_once_and_takes_its_place():
    job = Job(**SHORT).enforces()
    job.runs(1, orders={3: objective_order(Slowdown(1.2))})
    job.runs(5)
    (asked,) = job.requests(RoundPlan)
    assert asked.time_s == pytest.approx(1.2 * T_MIN_S)
    assert [plan.time_s for plan in job.decisions[-1].plans] == [asked.time_s] * 2
    (changed,) = job.events(ObjectiveChanged)
    taken = next(
        number for number, one in enumerate(job.decisions) if one.plans and one.plans[0].time_s == asked.time_s
    )
    assert taken <= changed.iteration + 4
    job.runs(1, orders={0: objective_order(None)})
    job.runs(1, orders={3: objective_order(Slowdown(1.2))})
    job.runs(3)
    assert len(job.requests(RoundPlan)) == 1


def test_where_a_plan_is_near_none_is_asked_for():
    job = Job(**SHORT).enforces()
    for point in route_of((1.0, 1.0)).points:
        job.runs(1, orders={3: objective_order(Slowdown(1.001 * point.time_s / T_MIN_S))})
        job.runs(3)
    job.runs(1, orders={3: objective_order(MinTime())})
    job.runs(3)
    assert job.requests(RoundPlan) == []


def test_a_power_between_two_plans_gets_a_plan_of_its_own():
    job = Job(**SHORT).enforces()
    table, (first, second, *_) = job.cores[0].table, route_of((1.0, 1.0)).points
    powers_w = [2 * plan.energy_j / plan.time_s for plan in (first, second)]
    job.runs(1, orders={0: objective_order(JobPower(sum(powers_w) / 2))})
    job.runs(1)
    assert job.runs(1).requests[0].time_s == pytest.approx((first.time_s + second.time_s) / 2, rel=0.01)
    assert job.cores[0].table is table, "nobody waits for it"


def test_an_order_during_profiling_holds_with_the_first_plans():
    job = Job(**SHORT)
    job.runs(1, orders={1: objective_order(Slowdown(1.2))})
    job.enforces()
    (changed,) = job.events(ObjectiveChanged)
    assert changed.expected is None
    assert job.decisions[-1].plans[0].time_s > T_MIN_S


def test_of_two_orders_at_once_all_ranks_end_with_the_same():
    job = Job(**SHORT).enforces()
    job.runs(1, orders={0: objective_order(MinTime()), 3: objective_order(Slowdown(1.2))})
    job.runs(3)
    assert [event.objective for event in job.events(ObjectiveChanged)] == [MinTime(), Slowdown(1.2)]
    assert job.decisions[-1].plans[0].time_s > T_MIN_S


def test_a_power_for_the_job_is_kept_during_a_straggler_too():
    job = Job(**SHORT).enforces()
    most_w = job.cores[0]._selector.expected(job.cores[0].table).power_w
    job.runs(1, orders={0: objective_order(JobPower(0.8 * most_w))})
    job.runs(3)
    (changed,) = job.events(ObjectiveChanged)
    assert changed.expected[1].met
    assert 0.6 * most_w < changed.expected[1].power_w <= 0.8 * most_w
    job.runs(6, slow={(1, 0): 1.3})
    now = job.cores[0]._selector.expected(job.cores[0].table)
    assert now.power_w <= 0.8 * most_w
    assert now.time_s >= 1.1 * T_MIN_S


def test_what_no_plan_can_draw_is_held_at_the_floor():
    job = Job(**SHORT).enforces()
    job.runs(1, orders={0: objective_order(JobPower(1.0))})
    job.runs(3)
    (changed,) = job.events(ObjectiveChanged)
    assert not changed.expected[1].met
    assert job.decisions[-1].plans[0] is route_of((1.0, 1.0)).points[-1]


@pytest.mark.parametrize("ordered", [False, True], ids=["configured", "ordered while profiling"])
def test_a_power_that_waits_for_the_first_plans_is_answered_with_them(ordered):
    job = Job(**SHORT, objective={} if ordered else {"power_w": 1.0})
    job.runs(1, orders={1: objective_order(JobPower(1.0))} if ordered else None)
    job.enforces()
    changed = job.events(ObjectiveChanged)
    assert [event.expected is None for event in changed] == [True] * ordered + [False]
    assert changed[-1].objective == JobPower(1.0)
    assert not changed[-1].expected[1].met
    assert job.decisions[-1].plans[0] is route_of((1.0, 1.0)).points[-1]


def test_after_an_order_a_configured_power_is_told_as_what_it_is():
    job = Job(**SHORT, objective={"power_w": 100.0}).enforces()
    job.runs(1, orders={1: objective_order(MinTime())})
    job.runs(3)
    job.runs(1, orders={1: objective_order(None)})
    job.runs(3)
    told = [event.objective for event in job.events(ObjectiveChanged)]
    assert told == [JobPower(100.0), MinTime(), JobPower(100.0)]


def test_an_order_that_nobody_has_heard_of_yet_needs_no_case_of_its_own(monkeypatch):
    """A made-up kind of order goes from a rank's floats to a request, through rounds and core as they are."""
    kind = OrderKind(code=77, neutral=0.0, parse=lambda *_: (0, 0.0), effect=lambda _: RetraceIteration)
    monkeypatch.setitem(ORDER_KINDS, "made-up", kind)
    job = Job(**SHORT).enforces()
    job.runs(1, orders={2: Order("made-up", 5, 0.25)})
    job.runs(4)
    assert [event.order for event in job.events(OrderPlaced)] == [Order("made-up", 5, 0.25)]
    assert job.requests(RetraceIteration) == [RetraceIteration(2)]
    assert [event.table.version for event in job.events(PlansAdopted)] == [1, 2]
