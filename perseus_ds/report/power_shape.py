"""Peak, mean and ramp of the job's power, before and after: what the operator of a site asks about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any

from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.report.html_parts import table_html
from perseus_ds.report.rundata import RunData
from perseus_ds.report.timeline import timeline_of

__all__ = ["PowerShape", "measured_shape", "peaks_w", "power_shape_html"]

_TITLES = (
    "mean, W",
    "highest mean of an iteration, W",
    "largest change from an iteration to the next, W/s",
    "highest power within an iteration, W",
    "lowest power within an iteration, W",
)


@dataclass(frozen=True)
class PowerShape:
    """Power of all GPUs of the job, over iterations.

    Attributes:
        mean_w: Energy over time.
        highest_w: The highest mean of an iteration.
        ramp_w_per_s: The largest change between the means of successive iterations, over the time of the first.
    """

    mean_w: float
    highest_w: float
    ramp_w_per_s: float


def measured_shape(rows: Sequence[dict[str, Any]], pipelines: int) -> PowerShape | None:
    """Return the shape of measured iterations; None of fewer than two.

    Args:
        rows: Of ``iterations.json``, in order.
        pipelines: Number of pipelines.
    """
    known = [row for row in rows if row["energy_j"] and row["iteration_time_s"]]
    if len(known) < 2:
        return None
    powers_w = [pipelines * row["energy_j"] / row["iteration_time_s"] for row in known]
    steps = [
        abs(after_w - before_w) / before["iteration_time_s"]
        for (before, before_w), (after, after_w) in pairwise(zip(known, powers_w, strict=True))
        if after["iteration"] == before["iteration"] + 1
    ]
    time_s = sum(row["iteration_time_s"] for row in known)
    mean_w = pipelines * sum(row["energy_j"] for row in known) / time_s
    return PowerShape(mean_w, max(powers_w), max(steps, default=0.0))


def peaks_w(problem: Problem, plan: Plan, pipelines: int) -> tuple[float, float]:
    """Return the highest and the lowest power of a job within an iteration; its pipelines begin together.

    Args:
        problem: One pipeline's.
        plan: All pipelines'.
        pipelines: How many there are.
    """
    corners = timeline_of(problem, plan).power_steps()
    # Instructions that end and begin at the same time leave a corner between them that lasts no time.
    lasting_w = [watts for (begin_s, watts), (end_s, _) in pairwise(corners) if end_s - begin_s > 1e-6]
    return pipelines * max(lasting_w), pipelines * min(lasting_w)


def power_shape_html(data: RunData) -> str:
    """Return the table of a run; nothing where too little was measured."""
    pipelines = data.summary["pipelines"]
    phases = ([row for row in data.iterations if row["phase"] == phase] for phase in ("baseline", "enforcing"))
    before, after = (measured_shape(rows, pipelines) for rows in phases)
    if before is None or after is None:
        return ""
    columns = [list(astuple(before)), list(astuple(after))]
    if data.problem is not None and data.plan is not None:
        highest = evaluate(data.problem, max_frequencies(data.problem))
        for column, plan in zip(columns, (highest, data.plan), strict=True):
            column += peaks_w(data.problem, plan, pipelines)
    rows = [(title, *(f"{value:.0f}" for value in row)) for title, *row in zip(_TITLES, *columns, strict=False)]
    return (
        "<h3>Power of the job</h3><p>All GPUs. Means and changes are measured, those of the plan over all its "
        "iterations; powers within an iteration are computed for the plan without stragglers.</p>"
        f"{table_html(('', 'before', 'after'), rows)}"
    )
