"""Plots of frontiers and of a pipeline's timeline. Needs matplotlib (``pip install perseus_ds[report]``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, instruction_points
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_frontier", "plot_timeline"]

_LABELLED = 400  # more boxes than this carry no micro-batch number


def plot_frontier(plans: Sequence[Plan], chosen: Plan, baseline: Plan, path: str | Path, note: str = "") -> None:
    """Draw energy against iteration time: plans, lower bound, the chosen plan and the highest clocks.

    Args:
        plans: Along the frontier.
        chosen: The plan to mark.
        baseline: Every instruction at its highest frequency.
        path: PNG or SVG file.
        note: Text below the title, such as "simulated GPUs".

    Raises:
        PerseusError: matplotlib is not installed.
    """
    figure, axes = _figure(7.0, 4.5)
    ordered = sorted(plans, key=lambda plan: plan.time_s)
    times = [plan.time_s for plan in ordered]
    axes.plot(times, [plan.energy_j for plan in ordered], "o-", color="#1b6ca8", label="plans")
    axes.plot(times, [plan.lower_bound_j for plan in ordered], ":", color="#555555", label="lower bound")
    axes.plot(chosen.time_s, chosen.energy_j, "*", color="#d1495b", markersize=14, label="chosen")
    axes.plot(baseline.time_s, baseline.energy_j, "s", color="#222222", label="highest clocks")
    axes.set_xlabel("iteration time (s)")
    axes.set_ylabel("energy of one pipeline's iteration (J)")
    axes.set_title("Time–energy frontier" + (f"\n{note}" if note else ""))
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)


def plot_timeline(problem: Problem, before: Plan, after: Plan, path: str | Path, note: str = "") -> None:
    """Draw one iteration under two plans. Boxes are instructions, colour is power, outlines mark the critical path.

    Args:
        problem: The planned pipeline.
        before: Plan of the upper picture.
        after: Plan of the lower picture.
        path: PNG or SVG file.
        note: Text below the title, such as "simulated GPUs".

    Raises:
        PerseusError: matplotlib is not installed.
    """
    figure, (upper, lower) = _figure(12.0, 1.2 + 0.6 * problem.dag.stages, rows=2)
    runs = [_run(problem, plan) for plan in (before, after)]
    powers = np.concatenate([power_w for _, _, power_w in runs])
    scale = (min(float(problem.stage_power_w.min()), float(powers.min())), float(powers.max()))
    end_s = max(before.time_s, after.time_s)
    for axes, plan, (starts, times, power_w), name in zip(
        (upper, lower), (before, after), runs, ("before", "after"), strict=True
    ):
        colours = _draw(axes, problem, starts, times, power_w, scale)
        axes.set_xlim(0, end_s)
        axes.set_title(f"{name}: {plan.time_s:.4g} s, {plan.energy_j:.5g} J", loc="left", fontsize=10)
        figure.colorbar(colours, ax=axes, label="W", pad=0.01)
    lower.set_xlabel("time (s)")
    if note:
        figure.suptitle(note, fontsize=9)
    _save(figure, path)


def _run(problem: Problem, plan: Plan) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return start, duration and power of each instruction."""
    frequencies = [plan.frequency_mhz[instruction] for instruction in problem.dag.instructions]
    times, effective = instruction_points(problem, frequencies)
    stages = [instruction.stage for instruction in problem.dag.instructions]
    power_w = effective / times + problem.stage_power_w[stages]
    return problem.dag.starts_s(times)[: times.size], times, power_w


def _draw(
    axes: Axes,
    problem: Problem,
    starts: NDArray[np.float64],
    times: NDArray[np.float64],
    power_w: NDArray[np.float64],
    scale: tuple[float, float],
) -> Any:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    dag = problem.dag
    boxes = [
        Rectangle((start, one.stage - 0.4), time, 0.8)
        for one, start, time in zip(dag.instructions, starts, times, strict=True)
    ]
    colours = PatchCollection(boxes, cmap="YlOrRd", edgecolor="white", linewidth=0.3)
    colours.set_array(power_w)
    colours.set_clim(*scale)
    axes.add_collection(colours)
    path = [node for node in dag.critical_path(times) if node < len(boxes)]
    outline = [Rectangle(boxes[node].get_xy(), times[node], 0.8) for node in path]
    axes.add_collection(PatchCollection(outline, facecolor="none", edgecolor="#1b3a8a", linewidth=1.0))
    if len(boxes) <= _LABELLED:
        for one, start, time in zip(dag.instructions, starts, times, strict=True):
            weight = "bold" if one.kind.computes_backward else "normal"
            axes.text(
                start + time / 2, one.stage, str(one.microbatch), ha="center", va="center", fontsize=5, weight=weight
            )
    axes.set_ylim(dag.stages - 0.5, -0.5)
    axes.set_yticks(range(dag.stages), [f"stage {stage}" for stage in range(dag.stages)])
    return colours


def _figure(width: float, height: float, rows: int = 1) -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PerseusError("plots-missing") from error
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows)


def _save(figure: Any, path: str | Path) -> None:
    figure.savefig(path, dpi=150)
