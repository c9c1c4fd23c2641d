"""Peak, mean and ramp of a job's power: measured iterations made up here, and powers within an iteration."""

import numpy as np
import pytest

from perseus_ds.frontier import solve
from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.frontier.plan import evaluate
from perseus_ds.report.power_shape import measured_shape, peaks_w
from perseus_ds.report.timeline import timeline_of

ROWS = [
    {"iteration": number, "iteration_time_s": time_s, "energy_j": energy_j}
    for number, time_s, energy_j in [(0, 1.0, 500.0), (1, 2.0, 800.0), (2, 1.0, None), (3, 1.0, 900.0)]
]


def test_mean_peak_and_ramp_of_measured_iterations():
    shape = measured_shape(ROWS, pipelines=2)
    assert shape.mean_w == pytest.approx(2 * 2200.0 / 4.0)
    assert shape.highest_w == 1800.0
    assert shape.ramp_w_per_s == 200.0, "an unknown iteration lies between the others"
    assert measured_shape(ROWS[1:3], pipelines=2) is None


def test_within_an_iteration_the_power_is_highest_where_most_stages_work(problem, plan):
    baseline = evaluate(problem, max_frequencies(problem))
    highest_w, lowest_w = peaks_w(problem, baseline, pipelines=2)
    one_w, _ = peaks_w(problem, baseline, pipelines=1)
    assert highest_w == 2 * one_w
    assert lowest_w < 2 * baseline.energy_j / baseline.time_s < highest_w
    all_wait_w = 2 * problem.gpus_per_stage * float(problem.stage_power_w.sum())
    working_w = [
        max(p.energy_j / p.time_s for key, points in problem.profile.curves.items() for p in points if key.stage == one)
        for one in range(problem.dag.stages)
    ]
    assert all_wait_w < lowest_w
    assert highest_w <= 2 * problem.gpus_per_stage * np.sum(working_w)
    assert peaks_w(problem, plan, 2)[0] < 0.75 * highest_w


@pytest.mark.parametrize(
    ("slower", "staggered", "slowed"), [(0.02, 0.98, 0.91), (0.05, 0.98, 0.86), (0.10, 0.97, 0.84)]
)
def test_a_slower_plan_lowers_peaks_further_than_staggered_pipelines_of_the_same_time_would(
    problem, slower, staggered, slowed
):
    """Pipelines meet in every gradient reduction: one that begins later by some time makes the iteration that longer.

    So there is no staggering. docs/power.md has these figures.
    """
    frontier = solve(problem)
    fastest = frontier.plan(frontier.t_min_s)
    together_w, _ = peaks_w(problem, fastest, pipelines=2)
    apart_s = slower * fastest.time_s
    at_s = np.linspace(0.0, fastest.time_s + apart_s, 5000)
    apart_w = (power_at(problem, fastest, at_s) + power_at(problem, fastest, at_s - apart_s)).max()
    slower_w, _ = peaks_w(problem, frontier.plan(fastest.time_s + apart_s), pipelines=2)
    assert apart_w > staggered * together_w
    assert slower_w < slowed * together_w


def power_at(problem, plan, at_s):
    """One pipeline's power at some times; outside its iteration it waits."""
    times_s, powers_w = np.array(timeline_of(problem, plan).power_steps()).T
    index = np.searchsorted(times_s, at_s, side="right") - 1
    waiting_w = problem.gpus_per_stage * problem.stage_power_w.sum()
    return np.where((at_s < 0.0) | (at_s >= plan.time_s), waiting_w, powers_w[np.clip(index, 0, len(powers_w) - 1)])
