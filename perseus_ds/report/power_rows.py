"""How the job has followed ordered powers: the rows ``power`` of ``summary.json``, and their pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from perseus_ds.frontier.power_signal import mean_within
from perseus_ds.report.run_stats import Measurement
from perseus_ds.report.svg import Axis, Chart

__all__ = ["PowerOrder", "power_chart", "power_rows", "slowdown_chart"]


@dataclass(frozen=True)
class PowerOrder:
    """An objective from one iteration on.

    Attributes:
        iteration: The first one.
        power_w: Power that the whole job may draw; None: this objective is another one.
        answered_iterations: Iterations from the order's reading to ``iteration``; None for a configured power.
        at_floor: No plan draws so little.
    """

    iteration: int
    power_w: float | None
    answered_iterations: int | None
    at_floor: bool


def power_rows(
    orders: Sequence[PowerOrder],
    series: Sequence[Mapping[str, Any]],
    pipelines: int,
    baseline: Measurement | None,
    caps: Sequence[tuple[float, float]] = (),
) -> list[dict[str, Any]]:
    """Return one row per ordered power.

    Args:
        orders: All objectives, in order.
        series: Rows by iteration; energies are those of one pipeline.
        pipelines: Number of pipelines.
        baseline: Whose iteration time a slowdown is relative to.
        caps: Predicted time and energy of a pipeline with one cap on the clocks of all GPUs, fastest first.
    """
    rows = []
    for order, end in zip(orders, [*(after.iteration for after in orders[1:]), math.inf], strict=False):
        if order.power_w is None:
            continue
        here = [
            row
            for row in series
            if order.iteration <= row["iteration"] < end and row["iteration_time_s"] and row["energy_j"]
        ]
        time_s = sum(row["iteration_time_s"] for row in here)
        rows.append(
            {
                "target_w": order.power_w,
                "measured_w": pipelines * sum(row["energy_j"] for row in here) / time_s if here else None,
                "answered_iterations": order.answered_iterations,
                "slowdown": _typical_s(here) / baseline.iteration_time_s - 1 if here and baseline else None,
                **_predicted(here, caps),
                "at_floor": order.at_floor,
                "begin_iteration": order.iteration,
                "iterations": len(here),
            }
        )
    return rows


def _typical_s(here: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean iteration time without single stalls, which the baseline, a median, does not have either.

    Plans alternate, so it is not the median of the times, but that of measured over planned time.
    """
    planned = [row for row in here if row["planned_time_s"]]
    if not planned:
        return median(row["iteration_time_s"] for row in here)
    ratio = median(row["iteration_time_s"] / row["planned_time_s"] for row in planned)
    return ratio * fmean(row["planned_time_s"] for row in planned)


def _predicted(here: Sequence[Mapping[str, Any]], caps: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    """Return what the same curves predict for the plans that ran, and for one cap that draws as much as they do.

    What the job draws beyond its plans' predictions, as warm GPUs do, a cap would draw as well: so the cap is not
    given the power that was ordered, but the one that the curves predict for the plans that have met it.
    """
    planned = [(row["planned_time_s"], row["planned_energy_j"]) for row in here if row["planned_time_s"]]
    if not (planned and caps):
        return {"predicted_slowdown": None, "uniform_slowdown": None}
    time_s, energy_j = (sum(values) / len(planned) for values in zip(*planned, strict=True))
    cap, fastest_s = mean_within(caps, energy_j / time_s), caps[0][0]
    return {
        "predicted_slowdown": time_s / fastest_s - 1,
        "uniform_slowdown": cap.time_s / fastest_s - 1 if cap.met else None,
    }


def power_chart(rows: Sequence[Mapping[str, Any]], series: Sequence[Mapping[str, Any]], pipelines: int) -> str:
    """Draw target and measured power of the job by iteration, as SVG.

    Args:
        rows: From ``power_rows``, at least one.
        series: Rows by iteration.
        pipelines: Number of pipelines.
    """
    drawn = [
        (row["iteration"], pipelines * row["energy_j"] / row["iteration_time_s"])
        for row in series
        if row["phase"] == "enforcing" and row["energy_j"] and row["iteration_time_s"]
    ]
    powers_w = [power_w for _, power_w in drawn] + [row["target_w"] for row in rows]
    chart = Chart(
        "Target and measured power of the job",
        Axis.around("training iteration", [iteration for iteration, _ in drawn]),
        Axis.around("power of the job, W", powers_w, zero=True),
        width=980,
        height=260,
    )
    chart.line(drawn, "curve measured")
    for row in rows:
        chart.line(_level(row, row["target_w"]), "curve chosen")
        chart.note(row["begin_iteration"], row["target_w"], f"{row['target_w']:.0f} W")
    return chart.svg()


def slowdown_chart(rows: Sequence[Mapping[str, Any]], series: Sequence[Mapping[str, Any]]) -> str:
    """Draw the slowdown while each power held, measured, and predicted for a uniform cap, as SVG.

    Args:
        rows: From ``power_rows``, at least one.
        series: Rows by iteration.
    """
    kinds = (("slowdown", "curve measured"), ("uniform_slowdown", "curve baseline"))
    known = [100 * row[name] for row in rows for name, _ in kinds if row[name] is not None]
    chart = Chart(
        "Slowdown: measured; grey: predicted for one clock cap on all GPUs that draws as much",
        Axis.around("training iteration", [row["iteration"] for row in series if row["phase"] == "enforcing"]),
        Axis.around("slowdown, %", known, zero=True),
        width=980,
        height=200,
    )
    for row in rows:
        for name, style in kinds:
            if (value := row[name]) is not None:
                chart.line(_level(row, 100 * value), style)
                chart.note(row["begin_iteration"], 100 * value, f"{100 * value:.1f} %")
    return chart.svg()


def _level(row: Mapping[str, Any], value: float) -> list[tuple[float, float]]:
    begin = row["begin_iteration"]
    return [(begin, value), (begin + max(row["iterations"], 1), value)]
