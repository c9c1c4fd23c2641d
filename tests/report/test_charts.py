"""The report's charts, read back: what stands in them is where it should be."""

from dataclasses import replace
from pathlib import Path

import pytest
from drawing import Drawing

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile
from perseus_ds.report.charts import (
    curve_charts,
    frontier_chart,
    history_charts,
    other_planners,
    plans_by_switches,
    switches_chart,
)
from perseus_ds.report.rundata import RunData


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
    as_fast = {title: one.energy_j for title, one in others.items() if one.time_s <= plan.time_s * (1 + 1e-6)}
    assert set(as_fast) == {"EnvPipe", "Zeus global"}
    assert min(as_fast.values()) > plan.energy_j


def test_the_chart_of_switches_highlights_the_plan_that_ran(problem, plan):
    plans = plans_by_switches(problem, plan)
    drawing = Drawing(switches_chart(plans, plan))
    of_plans = [(one.switches, one.energy_j) for one in plans]
    assert drawing.lines("bound") == [[near(point, of_plans) for point in of_plans]]
    assert drawing.dots("mark chosen") == [near((plan.switches, plan.energy_j), of_plans)]
    assert len(drawing.dots("plan")) == sum(one is not plan for one in plans)
    assert f"{plan.switches} switches: {plan.energy_j:.1f} J" in drawing.tips("circle", "chosen")[0]
    chosen, other = (float(drawing.marks("circle", style)[0].get("r")) for style in ("chosen", "plan"))
    assert chosen == 2 * other


def near(point, points):
    """A point, as exactly as a chart of all these points tells it."""
    spans = [max(values) - min(values) for values in zip(*points, strict=True)]
    return tuple(pytest.approx(value, abs=0.004 * span) for value, span in zip(point, spans, strict=True))


def run_data(**given) -> RunData:
    empty = {"baseline": None, "predicted": None, "measured": None, "stragglers": []}
    given = {"frontier": None, "planned": None, "profile": None, "events": (), "iterations": (), **given}
    summary = empty | given.pop("summary", {})
    return RunData(Path("run"), summary, provenance={}, traces=(), **given)


def test_the_frontier_has_its_bound_its_plans_and_what_was_measured(plan):
    plans = [
        {"time_s": 2.0 + i, "lower_bound_j": 90.0 - 10 * i, "energy_j": 92.0 - 10 * i, "switches": 4} for i in range(3)
    ]
    figures = {
        "baseline": {"iteration_time_s": 2.0, "energy_j": 100.0},
        "measured": {"iteration_time_s": 2.1, "energy_j": 93.0},
    }
    other = replace(plan, time_s=2.0, energy_j=96.0)
    given = run_data(frontier={"frontier": plans}, planned={"time_s": 2.0, "energy_j": 92.0}, summary=figures)
    chart = frontier_chart(given, {"EnvPipe": other})
    drawing = Drawing(chart)
    extent = [(2.0, 70.0), (4.0, 100.0)]
    assert drawing.lines("bound") == [[near((one["time_s"], one["lower_bound_j"]), extent) for one in plans]]
    assert drawing.dots("plan") == [near((one["time_s"], one["energy_j"]), extent) for one in plans]
    for name, figure in figures.items():
        assert drawing.dots(f"mark {name}") == [near((figure["iteration_time_s"], figure["energy_j"]), extent)]
    assert drawing.dots("mark chosen") == [near((2.0, 92.0), extent)]
    assert drawing.dots("mark other") == [near((2.0, 96.0), extent)]
    assert drawing.texts("note") == ["baseline", "EnvPipe"]
    assert drawing.tips("circle", "mark measured") == ["measured: 2.1000 s, 93.0 J"]


def test_names_of_equal_plans_stand_below_one_another(plan):
    plans = [{"time_s": 2.0 + i, "lower_bound_j": 90.0, "energy_j": 92.0, "switches": 4} for i in range(2)]
    twins = {name: replace(plan, time_s=2.5, energy_j=95.0) for name in ("EnvPipe", "Zeus global")}
    drawing = Drawing(frontier_chart(run_data(frontier={"frontier": plans}), twins))
    first, second = (float(one.get("y")) for one in drawing.marks("text", "note"))
    assert second - first == pytest.approx(13.0)


def test_a_profile_has_energy_and_time_of_each_stage_with_their_intervals():
    points = [ProfilePoint(1400, 0.05, 20.0, 0.004, 1.0), ProfilePoint(1000, 0.07, 15.0, 0.002, 0.5)]
    slower = [point._replace(time_s=2 * point.time_s, energy_j=2 * point.energy_j) for point in points]
    kinds = {Kind.FORWARD: points, Kind.BACKWARD: slower}
    profile = make_profile({CurveKey(stage, kind): rows for stage in range(2) for kind, rows in kinds.items()})
    charts = curve_charts(run_data(profile=profile))
    assert [stage for stage, _, _ in charts] == [0, 1]
    for _, energies, times in charts:
        extent = [(1000, 0.0), (1400, 40.0)]
        drawing = Drawing(energies)
        assert drawing.dots("point forward") == [near((1400, 20.0), extent), near((1000, 15.0), extent)]
        assert drawing.dots("point backward") == [near((1400, 40.0), extent), near((1000, 30.0), extent)]
        highest, lowest = drawing.lines("bar forward")
        assert [y for _, y in (*highest, *lowest)] == pytest.approx([19.0, 21.0, 14.5, 15.5], abs=0.2)
        drawing = Drawing(times)
        extent = [(1000, 0.0), (1400, 140.0)]
        assert drawing.dots("point forward") == [near((1400, 50.0), extent), near((1000, 70.0), extent)]
        assert drawing.texts("label")[1] == "time, ms"
        assert drawing.tips("circle", "point forward")[0] == "forward, chunk 0, 1400 MHz: 50.000 ± 4.000 ms"
    assert curve_charts(run_data()) == []


def test_the_run_s_history_has_phases_switches_and_stragglers():
    rows = [
        {"iteration": i, "phase": "baseline" if i < 10 else "enforcing", "iteration_time_s": 2.0, "energy_j": 50.0 + i}
        for i in range(20)
    ]
    rows[3]["energy_j"] = None
    events = [
        {"event": "phase", "iteration": 0, "phase": "baseline"},
        {"event": "phase", "iteration": 10, "phase": "enforcing"},
        {"event": "switch", "iteration": 12},
    ]
    straggler = {"pipeline": 0, "stage": 1, "onset_iteration": 14, "recovered_iteration": 17}
    lasting = {"pipeline": 1, "stage": 0, "onset_iteration": 18, "recovered_iteration": None}
    data = run_data(iterations=rows, events=events, summary={"stragglers": [straggler, lasting]})
    times, energies = (Drawing(chart) for chart in history_charts(data))
    extent = [(0, 50.0), (20, 69.0)]
    known = [(row["iteration"] + 0.5, row["energy_j"]) for row in rows if row["energy_j"] is not None]
    assert energies.dots("point measured") == [near(point, extent) for point in known]
    assert energies.lines("curve measured") == [[near(point, extent) for point in known]]
    assert len(times.dots("point measured")) == 20
    assert [box[:2] for box in energies.boxes("band")] == [pytest.approx(x, abs=0.1) for x in ((0, 10), (10, 20))]
    assert len(energies.boxes("band0")) == len(energies.boxes("band1")) == 1
    assert energies.texts("note") == ["baseline", "enforcing"]
    assert [line[0][0] for line in energies.lines("switch")] == [pytest.approx(12, abs=0.1)]
    slow = [box[:2] for box in energies.boxes("straggler")]
    assert slow == [pytest.approx(x, abs=0.1) for x in ((14, 17), (18, 20))]
    assert energies.tips("rect", "straggler")[0] == "straggler: pipeline 0, stage 1"


def test_the_saving_over_the_run_is_drawn_once_the_baseline_has_been_refreshed():
    phase = {"event": "phase", "iteration": 0, "phase": "enforcing"}
    assert len(history_charts(run_data(events=[phase]))) == 2
    events = [phase] + [
        {"event": "baseline", "iteration": 1000 * i, "saving": s} for i, s in enumerate((0.10, 0.12, 0.11), 1)
    ]
    drawing = Drawing(history_charts(run_data(events=events))[2])
    extent = [(0, 0.0), (3001, 13.5)]
    assert drawing.dots("point measured") == [near(one, extent) for one in ((1000, 10.0), (2000, 11.0), (3000, 11.0))]
    assert len(drawing.lines("bar measured")) == 1
    assert drawing.tips("circle", "point measured")[2] == "iteration 3000: 11.00 % ± 2.48"
