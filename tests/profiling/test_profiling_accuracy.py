"""What a sweep of 40 iterations at PP4x8 is worth: curves, intervals, and the plans made from them.

On made GPUs whose counter is updated every 100 ms from a quarter of that time, with 3 % noise, whose clock takes
10 ms to change. Their instructions are those of GPT-3 175B: on A100, of 50 and 93 ms or 20 and 37 ms, and on A40,
where the power limit bends the curves and the times have a step, of 39 and 97 ms. The published curves scatter by
0.5 % from clock to clock; that is part of the truth here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from pipeline_truth import TruePipeline

import perseus_ds
from perseus_ds.config import ProfilingConfig
from perseus_ds.frontier import Frontier, Problem, evaluate, solve
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import Profile, ProfilePoint, read_profile

PROFILES = Path(perseus_ds.__file__).parent / "simulator" / "profiles"
UNEQUAL_STAGES = (1.0, 0.9, 1.2, 1.05)
BLOCKING_W = 83.64


@dataclass(frozen=True)
class Outcome:
    truth: Profile
    measured: Profile
    blocking_power_w: list[float]
    blocking_power_ci_w: list[float]
    planned_power_w: float
    iterations: int

    def errors(self) -> np.ndarray:
        return np.array([m.energy_j / t.energy_j - 1.0 for t, m in self.pairs()])

    def covered(self) -> list[bool]:
        return [abs(m.energy_j - t.energy_j) <= m.energy_ci_j for t, m in self.pairs()]

    def pairs(self) -> list[tuple[ProfilePoint, ProfilePoint]]:
        truth = {(key, point.frequency_mhz): point for key, points in self.truth.curves.items() for point in points}
        return [
            (truth[key, point.frequency_mhz], point) for key, points in self.measured.curves.items() for point in points
        ]


def sweep(gpu: str, scale: float, seed: int) -> Outcome:
    curves = {
        key: tuple(
            p._replace(
                time_s=p.time_s * scale * UNEQUAL_STAGES[key.stage],
                energy_j=p.energy_j * scale * UNEQUAL_STAGES[key.stage],
            )
            for p in points
        )
        for key, points in read_profile(PROFILES / f"gpt3-175b-{gpu}.csv").curves.items()
        if key.stage < 4
    }
    pipeline = TruePipeline(curves, seed=seed)
    clocks = [point.frequency_mhz for point in next(iter(curves.values()))]
    sweeps = [Sweep(pipeline.keys(s), clocks, ProfilingConfig(), 0.010, 0.07 * scale) for s in range(4)]
    iterations = 0
    while not all(one.done for one in sweeps):
        pipeline.run([one.next_frequencies() for one in sweeps])
        iterations += 1
    found = [attribute(pipeline.spans[s], pipeline.samples(s, offset=0.75), 0.010) for s in range(4)]
    measured, planned_power_w = merge_profiles((0, one) for one in found)
    return Outcome(
        Profile(curves),
        measured,
        [one.blocking_power_w for one in found],
        [one.blocking_power_ci_w for one in found],
        planned_power_w,
        iterations,
    )


class Case(NamedTuple):
    gpu: str
    scale: float
    seeds: int
    worst_error: float
    """Of all points of all seeds. What is left of short instructions is the scatter of the published curves."""


CASES = {
    "a100-50-93ms": Case("a100-sxm", 1.0, 4, 0.02),
    "a100-20-37ms": Case("a100-sxm", 0.4, 4, 0.03),
    "a40-39-97ms": Case("a40", 0.35, 2, 0.025),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def outcomes(case: Case) -> list[Outcome]:
    return [sweep(case.gpu, case.scale, seed) for seed in range(case.seeds)]


def test_38_clocks_take_40_iterations_at_most(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.iterations <= 40
        assert all(len(points) >= 38 for points in outcome.measured.curves.values())


def test_energies_are_within_2_percent(case: Case, outcomes: list[Outcome]) -> None:
    errors = np.array([outcome.errors() for outcome in outcomes])

    assert np.mean(np.abs(errors) <= 0.02) >= 0.995
    assert np.sqrt(np.mean(errors**2)) < 0.007
    assert np.abs(errors).max() < case.worst_error
    assert np.abs(errors.mean(axis=1)).max() < 0.003, "no bias"


def test_intervals_are_honest(outcomes: list[Outcome]) -> None:
    assert np.mean([inside for outcome in outcomes for inside in outcome.covered()]) >= 0.90


def test_blocking_power_is_within_3_percent(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        for power_w, ci_w in zip(outcome.blocking_power_w, outcome.blocking_power_ci_w, strict=True):
            assert power_w == pytest.approx(BLOCKING_W, rel=0.03)
            assert ci_w < 0.03 * BLOCKING_W


@pytest.mark.parametrize("slowdown", [1.0, 1.1, 1.3])
def test_plans_lose_1_percent_of_energy_at_most(outcomes: list[Outcome], slowdown: float) -> None:
    dag = schedule_dag("1f1b", 4, 8)
    for outcome in outcomes:
        truth = Problem(dag, outcome.truth, BLOCKING_W)
        best, found = solve(truth), solve(Problem(dag, outcome.measured, outcome.planned_power_w))
        plan = found.plan(found.clamp(found.t_min_s * slowdown))

        real = evaluate(truth, [plan.frequency_mhz[one] for one in dag.instructions])

        assert real.time_s == pytest.approx(plan.time_s, rel=0.01)
        assert real.energy_j == pytest.approx(plan.energy_j, rel=0.015)
        assert real.energy_j <= 1.01 * best_energy_j(best, slowdown)
        assert real.time_s <= 1.01 * max(best.t_min_s, best.clamp(best.t_min_s * slowdown))


def best_energy_j(frontier: Frontier, slowdown: float) -> float:
    return frontier.plan(frontier.clamp(frontier.t_min_s * slowdown)).energy_j
