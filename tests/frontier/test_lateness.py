"""What jittering clocks make of a plan, checked by hand on one stage and by simulating a pipeline otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.frontier import Plan, Problem, evaluate, solve
from perseus_ds.frontier.aims import aim, aims_s
from perseus_ds.frontier.late_runs import no_blame, run_late
from perseus_ds.frontier.lateness import Draws, drawn, evaluate_late, is_certain, neighbours_of
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

POINTS = [ProfilePoint(1000, 0.1, 20.0), ProfilePoint(500, 0.2, 16.0)]
ONE_STAGE = Problem(
    schedule_dag("1f1b", 1, 1),
    make_profile({CurveKey(0, kind): POINTS for kind in (Kind.FORWARD, Kind.BACKWARD)}),
    blocking_power_w=0.0,
)


def ran(problem: Problem, clocks_mhz: list[int], late_s: list[list[float]]) -> tuple[float, float]:
    nodes = neighbours_of(problem)
    clock = np.searchsorted(nodes.clocks_mhz, clocks_mhz)
    jitter_s = np.array(late_s).T.copy()
    draws = Draws(jitter_s, np.zeros_like(jitter_s), np.ones_like(jitter_s))
    return run_late(nodes, clock, draws, no_blame(len(clocks_mhz)))[:2]


@pytest.mark.parametrize(
    ("late_s", "time_s", "energy_j"),
    [
        ([[0.0, 0.0]], 0.3, 36.0),
        # The backward runs 0.02 s, a fifth of its work, at the forward's fast clock: 0.02 + 0.8 * 0.2.
        ([[0.0, 0.02]], 0.28, 20.0 + 0.2 * 20.0 + 0.8 * 16.0),
        # The forward does its last fifth at the backward's slow clock.
        ([[0.0, -0.02]], 0.32, 0.8 * 20.0 + 0.2 * 16.0 + 16.0),
        # The iteration repeats: the first clock comes after the last one. A tenth of the forward's work at that.
        ([[0.02, 0.0]], 0.31, 0.9 * 20.0 + 0.1 * 16.0 + 16.0),
        # A clock that comes later than the whole instruction changes nothing of it.
        ([[0.0, 9.0]], 0.2, 40.0),
        # Figures are means over the draws.
        ([[0.0, 0.0], [0.0, 0.02]], 0.29, (36.0 + 36.8) / 2),
    ],
)
def test_a_late_clock_begins_with_the_old_one_and_an_early_one_ends_with_the_new(late_s, time_s, energy_j):
    assert ran(ONE_STAGE, [1000, 500], late_s) == pytest.approx((time_s, energy_j))


def test_where_the_clock_stays_no_lateness_shows():
    assert ran(ONE_STAGE, [500, 500], [[0.07, -0.03]]) == pytest.approx((0.4, 32.0))


def test_a_request_costs_its_stall_where_the_clock_changes_and_nowhere_else():
    def expected(clocks_mhz: list[int], waiting_w: float = 0.0, stall_s: float = 0.003) -> Plan:
        profile = replace(ONE_STAGE.profile, request_stall_s=stall_s)
        problem = Problem(ONE_STAGE.dag, profile, blocking_power_w=waiting_w)
        return evaluate_late(problem, np.array(clocks_mhz), 0.0)

    assert expected([1000, 500]).time_s == pytest.approx(0.3 + 2 * 0.003)  # there and back
    assert expected([500, 500]).time_s == pytest.approx(0.4)
    still_j = expected([1000, 500], waiting_w=80.0).energy_j - expected([1000, 500], 80.0, stall_s=0.0).energy_j
    assert still_j == pytest.approx(2 * 0.003 * 80.0)


def test_draws_come_with_their_opposites_and_have_the_jitter_asked_for(gpt3: Problem):
    count = len(gpt3.dag.instructions)
    late_s = drawn(gpt3, 0.01, 32, seed=3).jitter_s
    assert late_s.shape == (count, 32)
    assert late_s.mean() == pytest.approx(0.0, abs=1e-12)
    assert late_s.std() == pytest.approx(0.01, rel=0.05)
    np.testing.assert_array_equal(late_s, drawn(gpt3, 0.01, 32, seed=3).jitter_s)
    with pytest.raises(PerseusError, match="switch jitter"):
        drawn(gpt3, -0.01, 2, seed=0)


def test_a_clock_that_comes_after_its_instruction_holds_the_next_ones_up():
    # The low clock comes 0.15 s late: its instruction and half of the next one are over by then.
    dag = schedule_dag("1f1b", 1, 2)
    problem = Problem(dag, ONE_STAGE.profile, blocking_power_w=0.0)
    order = dag.program_order[0]
    mhz, late_s = np.empty(4, dtype=np.int64), np.zeros((1, 4))
    mhz[order], late_s[0, order] = [1000, 500, 1000, 1000], [0.0, 0.15, 0.0, 0.0]
    alone = ran(problem, mhz, late_s)
    late_s[0, order[3]] = 0.05  # which is not asked for: its clock stays
    assert ran(problem, mhz, late_s) == alone
    # So nothing runs at 500 MHz.
    assert alone == pytest.approx((0.4, 4 * 20.0))


def test_a_clock_that_comes_after_the_iteration_holds_up_the_next_one():
    problem = Problem(schedule_dag("1f1b", 1, 2), ONE_STAGE.profile, blocking_power_w=0.0)
    order = problem.dag.program_order[0]
    mhz, late_s = np.empty(4, dtype=np.int64), np.zeros((1, 4))
    # The high clock comes when its instruction has ended at the low one, and 0.05 s of the next iteration are over.
    mhz[order], late_s[0, order] = [1000, 500, 500, 1000], [0.0, 0.0, 0.0, 0.25]
    assert ran(problem, mhz, late_s) == pytest.approx((0.05 + 0.75 * 0.1 + 3 * 0.2, 0.75 * 20.0 + 3.25 * 16.0))


@pytest.mark.parametrize(("jitter_s", "time_s"), [([0.0, 0.02], 0.29), ([0.02, 0.0], 0.315)])
def test_a_clock_jitters_in_proportion_to_its_latency(jitter_s, time_s):
    # The usual latency is 0.02 s: the low clock comes 0.01 s late, the high one 0.03 s.
    profile = replace(ONE_STAGE.profile, switch_latency_s={500: 0.01, 1000: 0.03})
    problem = Problem(ONE_STAGE.dag, profile, blocking_power_w=0.0)
    assert ran(problem, [1000, 500], [jitter_s])[0] == pytest.approx(time_s)


@pytest.mark.parametrize(
    ("latency_s", "time_s", "energy_j"),
    [
        # No request precedes the iteration: the low clock comes at 0.15, half through what would take 0.1 without it.
        ({500: 0.15, 1000: 0.02}, 0.45, 3 * 20.0 + 0.5 * 20.0 + 0.5 * 16.0),
        # Requests keep their order: the low clock's is due at 0.08, so the high one comes at 0.33 instead of 0.3.
        ({500: 0.02, 1000: 0.25}, 0.515, 2 * 20.0 + 16.0 + 0.15 * 16.0 + 0.85 * 20.0),
        # Not known: as long as the others usually take.
        ({500: 0.15}, 0.45, 3 * 20.0 + 0.5 * 20.0 + 0.5 * 16.0),
        ({}, 0.5, 3 * 20.0 + 16.0),
    ],
)
def test_a_clock_that_cannot_be_asked_for_early_enough_comes_late_every_time(latency_s, time_s, energy_j):
    dag = schedule_dag("1f1b", 1, 2)
    problem = Problem(dag, replace(ONE_STAGE.profile, switch_latency_s=latency_s), blocking_power_w=0.0)
    mhz = np.empty(4, dtype=np.int64)
    mhz[dag.program_order[0]] = [1000, 500, 1000, 1000]
    assert ran(problem, mhz, np.zeros((1, 4))) == pytest.approx((time_s, energy_j))


def test_a_tail_comes_on_top_of_the_jitter(gpt3: Problem):
    long = replace(gpt3, profile=replace(gpt3.profile, switch_tail_share=0.05, switch_tail_s=0.15))
    without, draws = (drawn(one, 0.01, 64, seed=3) for one in (gpt3, long))
    np.testing.assert_array_equal(draws.jitter_s, without.jitter_s)
    assert not without.tail_s.any()
    added_s = draws.tail_s[draws.tail_s != 0.0]
    assert added_s.size / draws.tail_s.size == pytest.approx(0.05, rel=0.1)
    assert added_s.mean() == pytest.approx(0.15, rel=0.1)
    assert is_certain(gpt3, 0.0)
    assert not is_certain(long, 0.0)


def test_expected_figures_come_with_the_plan(gpt3: Problem):
    frontier = solve(gpt3)
    plan = frontier.plan(1.02 * frontier.t_min_s)
    mhz = np.array([plan.frequency_mhz[one] for one in gpt3.dag.instructions])
    late = evaluate_late(gpt3, mhz, 0.01, lower_bound_j=7.0)
    assert (late.frequency_mhz, late.switches, late.lower_bound_j) == (plan.frequency_mhz, plan.switches, 7.0)
    assert late.switch_jitter_s == 0.01
    assert 1.003 * plan.time_s < late.time_s < 1.03 * plan.time_s
    assert late.energy_j > plan.energy_j
    assert evaluate_late(gpt3, mhz, 0.0, 7.0) == evaluate(gpt3, mhz, 7.0)


def test_clocks_are_asked_to_come_within_the_backward_where_that_depends_on_them_less():
    """A forward takes 0.1 or 0.2 s, a backward 0.2 or 0.22 s; what is earlier or later than that is jitter."""
    slow = [ProfilePoint(1000, 0.2, 40.0), ProfilePoint(500, 0.22, 30.0)]
    profile = make_profile({CurveKey(0, Kind.FORWARD): POINTS, CurveKey(0, Kind.BACKWARD): slow})
    problem = Problem(schedule_dag("1f1b", 1, 2), profile, blocking_power_w=0.0)
    clocks_mhz = [1000 if one.kind is Kind.FORWARD else 500 for one in problem.dag.instructions]
    plan = evaluate_late(problem, np.array(clocks_mhz), jitter_s=0.01)
    aims_s = {one.label.split(",")[0]: aim_s for one, aim_s in plan.aims_s.items()}
    within_s, ahead_s = 0.01 * aim(0.1, 0.2, 0.2, 0.22), -0.01 * aim(0.22, 0.2, 0.2, 0.1)
    assert aims_s == {
        "backward of micro-batch 0": pytest.approx(within_s, abs=1e-6),
        "forward of micro-batch 1": pytest.approx(-ahead_s, abs=1e-6),
        "backward of micro-batch 1": pytest.approx(within_s, abs=1e-6),
    }, "the first clock of all is not asked for ahead"
    # With the aims and no jitter: what each backward does at the forward's clock takes 0.02 s of 0.22 s less.
    nodes = neighbours_of(problem)
    still = Draws(np.zeros((4, 2)), np.zeros((4, 2)), np.ones((4, 2)), deviation_s=0.01)
    time_s = run_late(nodes, np.searchsorted(nodes.clocks_mhz, clocks_mhz), still, no_blame(4))[0]
    assert time_s == pytest.approx(0.64 - 0.02 * (2 * within_s / 0.2 + ahead_s / 0.22))


def test_a_clock_is_asked_for_no_later_than_its_instruction_begins():
    slow = [ProfilePoint(1000, 0.2, 40.0), ProfilePoint(500, 0.2, 30.0)]
    profile = make_profile({CurveKey(0, Kind.FORWARD): POINTS, CurveKey(0, Kind.BACKWARD): slow})
    known = replace(profile, switch_latency_s={1000: 0.004, 500: 0.004})
    problem = Problem(schedule_dag("1f1b", 1, 1), known, blocking_power_w=0.0)
    nodes = neighbours_of(problem)
    assert aims_s(nodes, np.array([1, 0]), 0.01).tolist() == [0.0, 0.004]
