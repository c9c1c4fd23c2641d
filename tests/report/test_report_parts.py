"""The report's parts on a plan of the shipped profile: what is drawn is what was planned."""

import itertools
import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from perseus_ds.frontier import Problem, evaluate, solve
from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile
from perseus_ds.report.charts import other_planners, plans_by_switches, switches_chart
from perseus_ds.report.rundata import read_run
from perseus_ds.report.svg import Axis, Chart, nice_ticks
from perseus_ds.report.timeline import power_chart, timeline_chart, timeline_of
from perseus_ds.runtime.simulation import profile_file


@pytest.fixture(scope="module")
def problem():
    profile = read_profile(profile_file("gpt3-175b-a100-sxm"))
    return Problem(schedule_dag("1f1b", profile.stages, 8), profile, 83.64, gpus_per_stage=2)


@pytest.fixture(scope="module")
def plan(problem):
    frontier = solve(problem)
    return frontier.plan(frontier.t_min_s)


def test_the_area_under_the_power_chart_is_the_plan_s_energy(problem, plan):
    for one in (plan, evaluate(problem, max_frequencies(problem))):
        timeline = timeline_of(problem, one)
        steps = timeline.power_steps()
        area_j = sum(watts * (later - now) for (now, watts), (later, _) in itertools.pairwise(steps))
        assert area_j == pytest.approx(one.energy_j, rel=1e-9)
        assert timeline.time_s == pytest.approx(one.time_s)


def test_the_critical_path_has_no_gap(problem, plan):
    timeline = timeline_of(problem, plan)
    begins = np.array([timeline.begin_s[i] for i in sorted(timeline.critical, key=lambda i: timeline.begin_s[i])])
    ends = np.array([timeline.end_s[i] for i in sorted(timeline.critical, key=lambda i: timeline.begin_s[i])])
    assert begins[0] == 0.0
    assert begins[1:] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(timeline.time_s)


def test_fewer_switches_never_cost_less_and_no_plan_is_slower(problem, plan):
    plans = plans_by_switches(problem, plan)
    switches, energies = [p.switches for p in plans], [p.energy_j for p in plans]
    assert switches == sorted(switches)
    assert energies == sorted(energies, reverse=True)
    assert len(plans) >= 4
    assert all(p.time_s <= plan.time_s * (1 + 1e-9) for p in plans)


def test_no_other_planner_beats_the_plan_that_ran(problem, plan):
    others = other_planners(problem, plan.time_s)
    assert len(others) == 3
    assert all(one.energy_j >= plan.energy_j for one in others.values() if one.time_s <= plan.time_s * (1 + 1e-6))


def test_charts_are_well_formed_and_show_every_instruction(problem, plan):
    timeline = timeline_of(problem, plan)
    drawn = ElementTree.fromstring(timeline_chart(timeline, "a <title> & more", plan.time_s))
    assert sum("work" in one.get("class", "") for one in drawn.iter("rect")) == len(problem.dag.instructions)
    for svg in (power_chart([(timeline, "chosen")], plan.time_s), switches_chart([plan], plan)):
        ElementTree.fromstring(svg)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.43, 0.52, [0.44, 0.46, 0.48, 0.5, 0.52]), (5, 5, [5])],
)
def test_ticks_are_round_numbers_within_the_axis(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_an_axis_of_nothing_or_of_one_value_can_be_drawn():
    for values in ([], [float("nan")], [3.0], [0.0]):
        axis = Axis.around("x", values)
        chart = Chart("empty", axis, axis)
        chart.dot(axis.low, axis.high, "plan")
        ElementTree.fromstring(chart.svg())


def test_the_confidence_interval_holds_the_true_saving(tmp_path):
    random = np.random.default_rng(3)
    rows = [
        {"iteration": i, "phase": phase, "steady": True, "energy_j": random.normal(mean, 8.0), "iteration_time_s": 1.0}
        for i, (phase, mean) in enumerate([("baseline", 1000.0)] * 20 + [("enforcing", 880.0)] * 20)
    ]
    rows.append({"iteration": 40, "phase": "enforcing", "steady": False, "energy_j": 9e9, "iteration_time_s": 9.0})
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "iterations.json").write_text(json.dumps(rows))
    saving = read_run(tmp_path).confidence("energy_j")
    assert saving.low < 0.12 < saving.high
    assert saving.high - saving.low < 0.02
    slowdown = read_run(tmp_path).confidence("iteration_time_s")
    assert (slowdown.low, slowdown.high) == (0.0, 0.0)
