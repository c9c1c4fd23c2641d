"""What is planned, and how its energy is counted."""

from __future__ import annotations

import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Problem, solve
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag


def test_blocking_power_per_stage_counts_each_stage() -> None:
    profile = same_everywhere(2, curve((1410, 0.1, 30.0)))
    problem = Problem(schedule_dag("gpipe", 2, 1), profile, (50.0, 100.0), gpus_per_stage=2)
    frontier = solve(problem)
    # Each GPU is busy half of 0.4 s.
    assert frontier.plan(0.4).energy_j == pytest.approx(2 * (4 * 30 + 0.2 * 50 + 0.2 * 100))


@pytest.mark.parametrize("power", [-1.0, float("nan"), (1.0, 2.0, 3.0)])
def test_impossible_blocking_power_is_refused(power: object) -> None:
    with pytest.raises(PerseusError, match="blocking power"):
        Problem(schedule_dag("1f1b", 2, 2), same_everywhere(2, curve((1410, 0.1, 30.0))), power)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", [0, -1])
def test_a_stage_without_gpus_is_refused(gpus: int) -> None:
    with pytest.raises(PerseusError, match="GPUs per stage"):
        Problem(schedule_dag("1f1b", 2, 2), same_everywhere(2, curve((1410, 0.1, 30.0))), 0.0, gpus_per_stage=gpus)


def test_instructions_know_their_curves() -> None:
    problem = Problem(schedule_dag("1f1b", 2, 3), same_everywhere(2, convex_points(4)), (10.0, 20.0))
    assert [(key.stage, key.kind) for key in problem.keys] == [
        (0, Kind.BACKWARD), (0, Kind.FORWARD), (1, Kind.BACKWARD), (1, Kind.FORWARD),
    ]  # fmt: skip
    for one, number in zip(problem.dag.instructions, problem.curve_of.tolist(), strict=True):
        assert (one.stage, one.kind) == problem.keys[number][:2]
    # 0.05 s at 20 W more blocking power is 0.5 J less of effective energy.
    assert problem.options[0].effective_j[0] - problem.options[2].effective_j[0] == pytest.approx(0.05 * 10)


def test_energy_is_effective_energy_and_waiting_of_all_gpus_and_never_negative() -> None:
    problem = Problem(schedule_dag("1f1b", 2, 1), same_everywhere(2, convex_points(2)), (10.0, 20.0), gpus_per_stage=4)
    assert problem.energy_j(-5.0, 2.0) == 4 * (-5.0 + 30.0 * 2.0)
    assert problem.energy_j(-5.0, 0.1) == 0.0
