"""The accounting of a job of many pipelines."""

from __future__ import annotations

import pytest
from made_up import curve, same_everywhere

from perseus_ds.frontier import Frontier, Problem, evaluate, solve
from perseus_ds.frontier.emulation import emulate, job_energy_j
from perseus_ds.pipeline.schedules import schedule_dag


@pytest.fixture
def frontier() -> Frontier:
    points = curve((1400, 0.1, 30.0), (1200, 0.12, 25.0), (1000, 0.15, 24.0))
    return solve(Problem(schedule_dag("1f1b", 2, 2), same_everywhere(2, points), 50.0))


def test_all_wait_for_the_slowest_at_blocking_power(frontier: Frontier) -> None:
    own = evaluate(frontier.problem, [1400] * 8)
    assert (own.time_s, own.energy_j) == (pytest.approx(0.6), pytest.approx(8 * 30 + 50 * 2 * 0.2))
    assert job_energy_j(frontier, own, own, 1, (), 0.6) == pytest.approx(260)
    # One straggler takes 1.5 times as long and as much; two others wait 0.3 s on two GPUs each.
    assert job_energy_j(frontier, own, own, 3, [1.5], 0.9) == pytest.approx(1.5 * 260 + 2 * (260 + 0.3 * 100))
    # Of two stragglers the faster one waits too.
    assert job_energy_j(frontier, own, own, 2, [1.5, 1.2], 0.9) == pytest.approx(2.7 * 260 + 0.18 * 100)


def test_savings_are_of_the_energy_at_the_highest_clocks(frontier: Frontier) -> None:
    result = emulate(frontier, 4, [1.3])
    assert result.t_straggler_s == pytest.approx(0.78)
    assert result.t_opt_s == pytest.approx(0.78)
    assert result.saving_total == pytest.approx(1 - result.planned_j / result.baseline_j)
    assert result.baseline_j == pytest.approx(1.3 * 260 + 3 * (260 + 0.18 * 100))
    own, others = frontier.plan(0.6), frontier.plan(0.78)
    expected_j = (
        1.3 * own.energy_j + 3 * (others.energy_j + (0.78 - others.time_s) * 100) + (0.78 - 1.3 * own.time_s) * 100
    )
    assert result.planned_j == pytest.approx(expected_j)
    assert result.saving_intrinsic == pytest.approx(1 - own.energy_j / 260)
    assert result.planners["max"] == {"saving_intrinsic": 0.0, "saving_total": 0.0}


def test_without_stragglers_nobody_slows_down(frontier: Frontier) -> None:
    result = emulate(frontier, 4, [])
    assert result.t_opt_s == result.t_straggler_s == frontier.t_min_s
    assert result.saving_total == pytest.approx(result.saving_intrinsic)
