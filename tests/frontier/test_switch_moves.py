"""Moves that keep to a time and a number of switches."""

import numpy as np
import pytest

from perseus_ds.frontier.switch_moves import StageTable, count_changes, move_clocks
from perseus_ds.pipeline.schedules import schedule_dag

DAG = schedule_dag("1f1b", 1, 4)
# 500 and 1000 MHz: half the time for twice the energy, forward and backward alike.
TABLE = StageTable(
    np.array([500, 1000]), np.array([[0.2, 0.1]] * 2), np.array([[10.0, 20.0]] * 2), np.array([0, 1] * 4)
)
SLOW, FAST = np.zeros(8, dtype=np.int64), np.ones(8, dtype=np.int64)


def moved(path, limit_s, penalty_j, max_switches):
    return move_clocks(DAG, [TABLE], path, limit_s, 1000.0, penalty_j, max_switches)


@pytest.mark.parametrize(("path", "changes"), [([0, 0, 0], 0), ([0, 1, 1], 2), ([0, 1, 0, 1], 4), ([1], 0)])
def test_changes_count_the_way_back(path, changes):
    assert count_changes(np.array(path)) == changes


def test_a_plan_that_is_too_slow_becomes_fast_enough_and_no_faster():
    clocks = moved([SLOW], 1.2 + 1e-9, penalty_j=0.0, max_switches=None)
    assert sorted(clocks) == [500] * 4 + [1000] * 4


def test_time_that_is_left_is_used():
    clocks = moved([FAST], 1.0 + 1e-9, penalty_j=0.0, max_switches=None)
    assert sorted(clocks) == [500] * 2 + [1000] * 6


def test_switches_stay_within_their_number():
    clocks = moved([FAST], 1.2 + 1e-9, penalty_j=0.0, max_switches=2)
    assert count_changes(clocks[DAG.program_order[0]]) == 2
    assert sorted(clocks) == [500] * 4 + [1000] * 4
    assert set(moved([FAST], 1.2 + 1e-9, penalty_j=0.0, max_switches=0)) == {1000}


def test_a_switch_that_costs_more_than_it_saves_is_not_made():
    assert set(moved([FAST], 0.9 + 1e-9, penalty_j=6.0, max_switches=None)) == {1000}
    clocks = moved([FAST], 0.9 + 1e-9, penalty_j=4.0, max_switches=None)
    assert sorted(clocks) == [500] + [1000] * 7


def test_a_whole_stage_moves_at_once():
    assert set(moved([FAST], 1.6 + 1e-9, penalty_j=100.0, max_switches=0)) == {500}
