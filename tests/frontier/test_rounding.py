"""Plans that a GPU can run, beside the best ones there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Problem, evaluate, solve
from perseus_ds.frontier.rounding import round_durations
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, make_profile


@pytest.mark.parametrize("seed", range(5))
def test_a_stage_alone_gets_its_best_plan(seed: int) -> None:
    random = np.random.default_rng(seed)
    times, savings = np.cumsum(random.uniform(0.01, 0.02, (2, 2, 6)), axis=2)
    profile = make_profile(
        {
            CurveKey(0, kind): curve(*((1410 - 15 * i, times[k, i], 20 - 300 * savings[k, i]) for i in range(6)))
            for k, kind in enumerate((Kind.FORWARD, Kind.BACKWARD))
        }
    )
    problem = Problem(schedule_dag("1f1b", 1, 3), profile, 0.0)
    limit_s = random.uniform(3.5, 5.5) * (times[0, 0] + times[1, 0])
    every = np.stack(np.meshgrid(*[np.arange(6)] * 6, indexing="ij")).reshape(6, -1)  # 6 instructions, 6 options
    within = sum(times[i % 2, every[i]] for i in range(6)) <= limit_s
    least_j = min(sum(20 - 300 * savings[i % 2, every[i]] for i in range(6))[within])
    assert solve(problem).plan(limit_s).energy_j == pytest.approx(least_j)


@pytest.mark.parametrize("share", [0.0, 0.15, 0.4, 0.75, 1.0])
def test_a_small_pipeline_gets_its_best_plan(share: float) -> None:
    problem = Problem(schedule_dag("1f1b", 2, 2), same_everywhere(2, convex_points(3)), 60.0)
    frontier = solve(problem)
    limit_s = frontier.t_min_s + share * (frontier.t_star_s - frontier.t_min_s)
    clocks = (1410, 1395, 1380)
    every = (evaluate(problem, choice) for choice in product(clocks, repeat=len(problem.dag.instructions)))
    best_j = min(plan.energy_j for plan in every if plan.time_s <= limit_s * (1 + 1e-12))
    assert frontier.plan(limit_s).energy_j == pytest.approx(best_j)


SLOW = [pytest.param(*size, marks=pytest.mark.compiled) for size in ((1, 6), (8, 12), (4, 40))]


@pytest.mark.parametrize(("stages", "microbatches"), [(3, 5), *SLOW])
def test_the_limit_holds_and_the_bound_is_near(stages: int, microbatches: int) -> None:
    problem = Problem(schedule_dag("1f1b", stages, microbatches), same_everywhere(stages, convex_points(20)), 75.0)
    frontier = solve(problem)
    for limit_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 4):
        frequencies = round_durations(problem, *frontier.solution(limit_s), limit_s)
        plan = evaluate(problem, frequencies)
        assert plan.time_s <= limit_s
        assert -1e-12 <= plan.energy_j / frontier.lower_bound_j(limit_s) - 1 < 0.004


@pytest.mark.compiled
def test_rounding_again_gives_the_same() -> None:
    problem = Problem(schedule_dag("1f1b", 4, 8), same_everywhere(4, convex_points(20)), 75.0)
    frontier = solve(problem)
    limit_s = 1.05 * frontier.t_min_s
    assert frontier.plan(limit_s) == frontier.plan(limit_s)


def test_large_pipelines_do_without_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_ds.frontier.rounding._LARGE", 10)
    monkeypatch.setattr("perseus_ds.frontier.rounding._EFFORT", 0)
    monkeypatch.setattr("perseus_ds.frontier.rounding.choose_chains", None)
    problem = Problem(schedule_dag("1f1b", 4, 8), same_everywhere(4, convex_points(20)), 75.0)
    frontier = solve(problem)
    plan = frontier.plan(1.05 * frontier.t_min_s)
    assert plan.time_s <= 1.05 * frontier.t_min_s
    assert plan.gap < 0.02
