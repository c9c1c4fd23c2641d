"""Moves of single clocks: what each changes, which are taken, and when they end."""

from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.frontier import Problem
from perseus_ds.frontier.late_moves import Terms, _around, _best_moves, _take, drop_late, hasten, save
from perseus_ds.frontier.late_runs import no_blame, run_late
from perseus_ds.frontier.lateness import Draws, neighbours_of
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint


def ran(nodes, clock, draws, blame):
    """Return mean time and energy."""
    return run_late(nodes, clock, draws, blame)[:2]


def even(late_s) -> Draws:
    """Return draws of micro-batches that are alike, given one draw after the other."""
    jitter_s = np.array(late_s).T.copy()
    return Draws(jitter_s, np.zeros_like(jitter_s), np.ones_like(jitter_s))


# One stage: every instruction is always critical, so a move changes exactly what the blame says.
LATE_S = 0.002


@pytest.fixture
def alone():
    """Neighbours of one stage with three micro-batches and four clocks, and late and early draws of the same size."""
    points = ((1400, 0.1, 40.0), (1200, 0.11, 32.0), (1000, 0.13, 27.0), (800, 0.16, 25.0))
    curves = {
        CurveKey(0, kind): tuple(ProfilePoint(mhz, long * time_s, long * energy_j) for mhz, time_s, energy_j in points)
        for kind, long in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 1.7))
    }
    profile = Profile(curves, "made up", request_stall_s=0.003)
    nodes = neighbours_of(Problem(schedule_dag("1f1b", 1, 3), profile, 50.0))
    return nodes, even([[LATE_S] * 6, [-LATE_S] * 6])


def terms(limit_s: float, dearest_w: float = np.inf, waiting_w: float = 50.0) -> Terms:
    return Terms(limit_s, LATE_S / 2, waiting_w, dearest_w)


def test_a_move_changes_time_and_energy_as_it_is_said_to(alone):
    nodes, draws = alone
    chance = np.random.default_rng(3)
    for _ in range(5):
        clock, blame = chance.integers(0, 4, 6), no_blame(6)
        before = ran(nodes, clock, draws, blame)
        for node in range(6):
            around = np.zeros((2, 4))
            _around(nodes, clock, blame, terms(1.0), node, *around)
            for other in range(4):
                said = around[:, other] - around[:, clock[node]]
                moved = clock.copy()
                moved[node] = other
                assert said == pytest.approx(np.subtract(ran(nodes, moved, draws, no_blame(6)), before))


def test_a_move_knows_which_clock_can_be_asked_for_early_enough():
    points = tuple(ProfilePoint(mhz, time_s, 1.0) for mhz, time_s in ((1400, 0.1), (1200, 0.11), (1000, 0.13)))
    curves = {CurveKey(0, kind): points for kind in (Kind.FORWARD, Kind.BACKWARD)}
    profile = Profile(curves, "made up", switch_latency_s={1400: 0.02, 1200: 0.06, 1000: 0.15})
    nodes = neighbours_of(Problem(schedule_dag("1f1b", 1, 3), profile, 0.0))
    chance, punctual = np.random.default_rng(3), even(np.zeros((1, 6)))
    for _ in range(20):
        clock, blame = chance.integers(0, 3, 6), no_blame(6)
        before_s, _ = ran(nodes, clock, punctual, blame)
        for node, other in np.ndindex(6, 3):
            around_s = np.zeros(3)
            _around(nodes, clock, blame, terms(1.0), node, around_s, np.zeros(3))
            moved = clock.copy()
            moved[node] = other
            after_s, _ = ran(nodes, moved, punctual, no_blame(6))
            # A longer instruction also moves the next one's begin: a second-order effect.
            assert around_s[other] - around_s[clock[node]] == pytest.approx(after_s - before_s, abs=0.01)


def test_the_best_move_wins_most_time_per_joule_or_most_joules_per_second(alone):
    nodes, draws = alone
    clock, blame, waiting_w = np.array([2, 1, 1, 3, 0, 2]), no_blame(6), 50.0
    time_s, energy_j = ran(nodes, clock, draws, blame)
    for faster in (True, False):
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms(1.0), faster)
        for node in range(6):
            values = {}
            for other in set(range(4)) - {int(clock[node])}:
                moved = clock.copy()
                moved[node] = other
                then_s, then_j = ran(nodes, moved, draws, no_blame(6))
                wins_s, costs_j = time_s - then_s, then_j - energy_j + waiting_w * (then_s - time_s)
                if faster and other > clock[node]:
                    values[other] = wins_s / max(costs_j, 1e-4)
                elif not faster and costs_j < 0:
                    values[other] = -costs_j / max(-wins_s, 1e-6)
                if to[node] == other:
                    assert (-change_s[node], cost_j[node]) == pytest.approx((wins_s, costs_j))
            assert to[node] == max(values, key=lambda one: values[one], default=-1)


def test_moves_are_made_cheapest_first_and_never_two_beside_each_other(alone):
    nodes, _ = alone
    to, size_s, price = np.full(6, 3), np.full(6, 0.01), np.array([3.0, 1.0, 2.0, 9.0, 4.0, np.inf])
    order = [int(node) for node in np.argsort(price)]
    first = order[0]
    beside = {int(nodes.before[first]), int(nodes.after[first])}
    second = next(node for node in order[1:] if node not in beside)
    for most_s, fitting, taken in ((0.01, False, {first}), (0.011, False, {first, second}), (0.011, True, {first})):
        clock = np.zeros(6, dtype=np.int64)
        assert _take(nodes, clock, to, size_s, price, most_s, fitting) == len(taken)
        assert set(np.flatnonzero(clock)) == taken
    clock = np.zeros(6, dtype=np.int64)
    taken = _take(nodes, clock, to, size_s, price, 1.0, False)
    moved = np.flatnonzero(clock)
    assert taken == moved.size >= 2
    assert 5 not in moved
    assert not any(nodes.after[node] in moved for node in moved)


@pytest.mark.parametrize(("dearest", "moves"), [(1.3, True), (0.7, False)])
def test_a_late_plan_gets_faster_unless_a_second_is_too_dear(alone, dearest, moves):
    nodes, draws = alone[0]._replace(stall_s=0.0), alone[1]
    clock, blame = np.full(6, 2), no_blame(6)
    time_s, energy_j = ran(nodes, clock, draws, blame)
    then_s, then_j = ran(nodes, np.full(6, 3), draws, blame)
    waiting_w = 0.7 * (then_j - energy_j) / (time_s - then_s)
    costs_w = (then_j - energy_j) / (time_s - then_s) - waiting_w
    hasten(nodes, clock, draws, terms(then_s * 1.0001, dearest * costs_w, waiting_w))
    assert ran(nodes, clock, draws, blame)[0] == pytest.approx(then_s if moves else time_s)


def test_time_that_is_left_is_spent_on_lower_clocks(alone):
    nodes, draws = alone
    clock, blame = np.full(6, 3), no_blame(6)
    time_s, energy_j = ran(nodes, clock, draws, blame)
    save(nodes, clock, draws, terms(1.1 * time_s))
    then_s, then_j = ran(nodes, clock, draws, blame)
    assert 1.05 * time_s < then_s <= 1.1 * time_s
    assert then_j + 50.0 * then_s < energy_j + 50.0 * time_s


def test_a_clock_that_comes_after_its_instruction_is_not_asked_for(alone):
    """Forwards take 0.1 s, backwards 0.17 s at the highest clock; the lowest one takes 0.28 s to come."""
    nodes, draws = alone[0]._replace(latency_s=np.array([0.28, 0.0, 0.0, 0.0])), even([[0.0] * 6] * 2)
    clock, blame, second = np.full(6, 3), no_blame(6), nodes.after[0]
    clock[second] = 0
    before = ran(nodes, clock, draws, blame)
    assert blame.held[second] > 0.5
    drop_late(nodes, clock, draws, terms(2.0, 100.0))
    assert clock.tolist() == [3] * 6
    after = ran(nodes, clock, draws, blame)
    assert after[1] + 50.0 * after[0] <= 1.001 * (before[1] + 50.0 * before[0])


def test_a_late_clock_stays_where_later_instructions_win_by_it(alone):
    nodes, draws = alone[0]._replace(latency_s=np.array([0.2, 0.0, 0.0, 0.0]), stall_s=0.0), even([[0.0] * 6] * 2)
    clock, blame, second = np.zeros(6, dtype=np.int64), no_blame(6), nodes.after[0]
    clock[0] = 3
    ran(nodes, clock, draws, blame)
    assert blame.held[second] > 0.5
    drop_late(nodes, clock, draws, terms(2.0, 100.0))
    assert clock[second] == 0
