"""The charts of the report, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from perseus_ds.frontier.baselines import baseline_plans
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import solve
from perseus_ds.frontier.switching import SwitchCost, switch_aware_plan
from perseus_ds.messages import PerseusError
from perseus_ds.profiling.table import CurveKey
from perseus_ds.report.power_rows import power_chart, slowdown_chart
from perseus_ds.report.rundata import RunData
from perseus_ds.report.svg import Axis, Chart

__all__ = [
    "curve_charts",
    "frontier_chart",
    "history_charts",
    "other_planners",
    "plans_by_switches",
    "switches_chart",
]

_PLANNERS = {"envpipe": "EnvPipe", "zeus-global": "Zeus global", "zeus-per-stage": "Zeus per stage"}
_MOST_SWITCHES = (0, 2, 4, 8, 16, 32)  # per stage
_LINE_PX = 13.0


def other_planners(problem: Problem, t_s: float) -> dict[str, Plan]:
    """Return the choice of every other planner on the same problem: least energy within an iteration time.

    Args:
        problem: The pipeline.
        t_s: Allowed iteration time; a planner that cannot meet it gives its fastest plan.
    """
    found = {}
    for name, title in _PLANNERS.items():
        plans = baseline_plans(problem, name)
        fitting = [plan for plan in plans if plan.time_s <= t_s * (1 + 1e-6)]
        found[title] = min(fitting, key=lambda plan: plan.energy_j) if fitting else plans[0]
    return found


def frontier_chart(data: RunData, others: Mapping[str, Plan]) -> str:
    """Draw the frontier, the plan in force, the baseline, the measurement, and the plans of other planners."""
    assert data.frontier is not None
    plans, summary = data.frontier["frontier"], data.summary
    marks: list[tuple[str, float, float, str]] = [
        (title, plan.time_s, plan.energy_j, "other") for title, plan in others.items()
    ]
    for name in ("baseline", "measured"):
        if one := summary[name]:
            marks.append((name, one["iteration_time_s"], one["energy_j"], name))
    if data.planned:
        marks.append(("planned", data.planned["time_s"], data.planned["energy_j"], "chosen"))
    times = [p["time_s"] for p in plans] + [mark[1] for mark in marks]
    energies = [p["lower_bound_j"] for p in plans] + [p["energy_j"] for p in plans] + [mark[2] for mark in marks]
    chart = Chart(
        "Energy of one pipeline's iteration against its time",
        Axis.around("iteration time, s", times),
        Axis.around("energy of one pipeline's iteration, J", energies),
        width=980,
        height=420,
    )
    chart.line([(p["time_s"], p["lower_bound_j"]) for p in plans], "bound")
    for p in plans:
        tip = f"{p['time_s']:.4f} s, {p['energy_j']:.1f} J, {p['switches']} switches"
        chart.dot(p["time_s"], p["energy_j"], "plan", tip)
    for title, time_s, energy_j, style in marks:
        chart.dot(time_s, energy_j, f"mark {style}", f"{title}: {time_s:.4f} s, {energy_j:.1f} J", radius=6)
    named = sorted((mark for mark in marks if mark[3] in ("other", "baseline")), key=lambda mark: -mark[2])
    last_y = float("-inf")
    for title, time_s, energy_j, _ in named:
        # Plans that are almost the same lie on each other; their names go below one another.
        last_y = max(chart.place(time_s, energy_j)[1], last_y + _LINE_PX)
        chart.note(time_s, energy_j, title, down_px=last_y - chart.place(time_s, energy_j)[1])
    return chart.svg()


def plans_by_switches(problem: Problem, ran: Plan) -> list[Plan]:
    """Return plans as fast as the one in force, from few switches and much energy to many and little.

    Args:
        problem: The pipeline.
        ran: The plan of the healthy pipelines.
    """
    frontier = solve(problem)
    t_s = max(ran.time_s, frontier.t_min_s)
    found = []
    for most in _MOST_SWITCHES:
        # In a noisy profile the highest clock need not be the fastest: few switches may then take too long.
        with suppress(PerseusError):
            plan = switch_aware_plan(frontier, t_s, SwitchCost(max_switches=most))
            mhz = plan.clocks_of(problem.dag.instructions)
            found.append(evaluate_late(problem, mhz, ran.switch_jitter_s, plan.lower_bound_j))
    best: list[Plan] = []
    for plan in sorted([*found, ran], key=lambda plan: (plan.switches, plan.energy_j)):
        if not best or plan.energy_j < best[-1].energy_j:
            best.append(plan)
    return best


def switches_chart(plans: Sequence[Plan], ran: Plan) -> str:
    """Draw energy against clock switches for equally fast plans.

    Args:
        plans: From few to many switches.
        ran: The plan to highlight.
    """
    chart = Chart(
        "Energy against clock switches",
        Axis.around("clock switches per iteration, all stages", [plan.switches for plan in plans], zero=True),
        Axis.around("energy of one pipeline's iteration, J", [plan.energy_j for plan in plans]),
        width=980,
        height=280,
    )
    chart.line([(plan.switches, plan.energy_j) for plan in plans], "bound")
    for plan in [*(plan for plan in plans if plan is not ran), ran]:
        tip = f"{plan.switches} switches: {plan.energy_j:.1f} J in {plan.time_s:.4f} s"
        style, radius = ("mark chosen", 6.0) if plan is ran else ("plan", 3.0)
        chart.dot(plan.switches, plan.energy_j, style, tip, radius)
    return chart.svg()


def curve_charts(data: RunData) -> list[tuple[int, str, str]]:
    """Draw the profile: for each stage its number, energy against clock, and time against clock."""
    if data.profile is None:
        return []
    found = []
    for stage in range(data.profile.stages):
        curves = {key: points for key, points in data.profile.curves.items() if key.stage == stage}
        found.append((stage, _curves(curves, energies=True), _curves(curves, energies=False)))
    return found


def _curves(curves: Mapping[CurveKey, Sequence[Any]], energies: bool) -> str:
    def value(point: Any) -> tuple[float, float]:
        return (point.energy_j, point.energy_ci_j) if energies else (1e3 * point.time_s, 1e3 * point.time_ci_s)

    every = [point for points in curves.values() for point in points]
    unit = "J" if energies else "ms"
    chart = Chart(
        "Energy per instruction" if energies else "Time per instruction",
        Axis.around("SM clock, MHz", [point.frequency_mhz for point in every]),
        Axis.around(f"{'energy' if energies else 'time'}, {unit}", [value(point)[0] for point in every], zero=True),
        width=480,
        height=240,
    )
    for key, points in curves.items():
        style = "backward" if key.kind.computes_backward else "forward"
        chart.line([(p.frequency_mhz, value(p)[0]) for p in points], f"curve {style}")
        for p in points:
            centre, half = value(p)
            tip = f"{key.kind.value}, chunk {key.chunk}, {p.frequency_mhz} MHz: {centre:.3f} ± {half:.3f} {unit}"
            chart.error_bar(p.frequency_mhz, centre, half, style)
            chart.dot(p.frequency_mhz, centre, f"point {style}", tip, radius=2.2)
    return chart.svg()


def history_charts(data: RunData) -> list[str]:
    """Draw time and energy over the run, with phases, switches and stragglers; then followed powers, and the saving."""
    powers = data.summary.get("power")
    return [
        _history(data, "iteration_time_s", "iteration time, s"),
        _history(data, "energy_j", "energy per iteration, J"),
        *([power_chart(powers, data.iterations, data.summary["pipelines"])] if powers else []),
        *([slowdown_chart(powers, data.iterations)] if powers else []),
        *_savings(data),
    ]


def _savings(data: RunData) -> list[str]:
    """Draw the saving over time, if the baseline has been refreshed."""
    points = data.savings()
    if not points:
        return []
    ends = [100 * (one.saving + side * (one.half_width or 0.0)) for one in points for side in (-1, 1)]
    chart = Chart(
        "Saving over the run: the latest eight refreshed baselines, with 95 % confidence",
        Axis("training iteration", 0, points[-1].iteration + 1),
        Axis.around("energy saved, %", ends, zero=True),
        width=980,
        height=260,
    )
    chart.line([(one.iteration, 100 * one.saving) for one in points], "curve measured")
    for one in points:
        tip = f"iteration {one.iteration}: {100 * one.saving:.2f} %"
        if one.half_width is not None:
            tip += f" ± {100 * one.half_width:.2f}"
            chart.error_bar(one.iteration, 100 * one.saving, 100 * one.half_width, "measured")
        chart.dot(one.iteration, 100 * one.saving, "point measured", tip, radius=2.2)
    return [chart.svg()]


def _history(data: RunData, quantity: str, label: str) -> str:
    rows = [row for row in data.iterations if row[quantity] is not None and row[quantity] == row[quantity]]
    last = max((row["iteration"] for row in data.iterations), default=0)
    chart = Chart(
        f"{label} over the run",
        Axis("training iteration", 0, last + 1),
        Axis.around(label, [row[quantity] for row in rows], margin=0.12),
        width=980,
        height=260,
    )
    for index, (phase, begin, end) in enumerate(_phases(data, last)):
        chart.box((begin, end), (chart.y.low, chart.y.high), f"band band{index % 2}")
        if end - begin > 0.02 * last:
            chart.upright(begin, "phase", phase, row=index % 2)
    for straggler in data.summary["stragglers"]:
        recovered = straggler["recovered_iteration"] or last + 1
        tip = f"straggler: pipeline {straggler['pipeline']}, stage {straggler['stage']}"
        chart.box((straggler["onset_iteration"], recovered), (chart.y.low, chart.y.high), "straggler", tip)
    for event in data.events:
        if event["event"] == "switch":
            chart.upright(event["iteration"], "switch")
    chart.line([(row["iteration"] + 0.5, row[quantity]) for row in rows], "curve measured")
    for row in rows:
        tip = f"iteration {row['iteration']} ({row['phase']}): {row[quantity]:.4g}"
        chart.dot(row["iteration"] + 0.5, row[quantity], "point measured", tip, radius=2.2)
    return chart.svg()


def _phases(data: RunData, last: int) -> list[tuple[str, int, int]]:
    begins = [(event["phase"], event["iteration"]) for event in data.events if event["event"] == "phase"]
    ends = [iteration for _, iteration in begins[1:]] + [last + 1]
    return [(phase, begin, end) for (phase, begin), end in zip(begins, ends, strict=True)]
