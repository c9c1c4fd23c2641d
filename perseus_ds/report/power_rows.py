"""How the job has followed ordered powers: the rows ``power`` of ``summary.json``, and their picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perseus_ds.report.run_stats import Measurement
from perseus_ds.report.svg import Axis, Chart

__all__ = ["PowerOrder", "power_chart", "power_rows"]


@dataclass(frozen=True)
class PowerOrder:
    """An objective from one iteration on.

    Attributes:
        iteration: The first one.
        power_w: Power that the whole job may draw; None: this objective is another one.
        answered_iterations: Iterations from the order's reading to ``iteration``; None for a configured power.
        uniform_slowdown: Predicted slowdown of one cap on the clocks of all GPUs with as much power.
        at_floor: No plan draws so little.
    """

    iteration: int
    power_w: float | None
    answered_iterations: int | None
    uniform_slowdown: float | None
    at_floor: bool


def power_rows(
    orders: Sequence[PowerOrder], series: Sequence[Mapping[str, Any]], pipelines: int, baseline: Measurement | None
) -> list[dict[str, Any]]:
    """Return one row per ordered power.

    Args:
        orders: All objectives, in order.
        series: Rows by iteration; energies are those of one pipeline.
        pipelines: Number of pipelines.
        baseline: Whose iteration time a slowdown is relative to.
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
                "slowdown": time_s / len(here) / baseline.iteration_time_s - 1 if here and baseline else None,
                "uniform_slowdown": order.uniform_slowdown,
                "at_floor": order.at_floor,
                "begin_iteration": order.iteration,
                "iterations": len(here),
            }
        )
    return rows


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
        begin, target_w = row["begin_iteration"], row["target_w"]
        chart.line([(begin, target_w), (begin + max(row["iterations"], 1), target_w)], "curve chosen")
        chart.note(begin, target_w, f"{target_w:.0f} W")
    return chart.svg()
