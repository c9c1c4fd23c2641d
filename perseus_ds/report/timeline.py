"""One iteration laid out by its DAG: instructions, waits, critical path, power."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, instruction_points
from perseus_ds.frontier.problem import Problem
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.report.svg import Axis, Chart

__all__ = ["Timeline", "power_chart", "timeline_chart", "timeline_of"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """The instructions of an iteration over time.

    Attributes:
        instructions: As in the DAG.
        begin_s: Start times, shape (instructions,).
        end_s: End times, shape (instructions,).
        mhz: Clocks, shape (instructions,).
        power_w: Power of all GPUs of the stage during each instruction.
        waiting_w: Power of all GPUs of each stage while waiting, shape (stages,).
        critical: Indices of the instructions on a critical path.
        time_s: Iteration time.
    """

    instructions: tuple[Instruction, ...]
    begin_s: FloatArray
    end_s: FloatArray
    mhz: NDArray[np.int64]
    power_w: FloatArray
    waiting_w: FloatArray
    critical: frozenset[int]
    time_s: float

    def power_steps(self) -> list[tuple[float, float]]:
        """Return the power of the pipeline over time, as corners of a step function: (seconds, watts)."""
        stage = np.array([one.stage for one in self.instructions])
        gain = self.power_w - self.waiting_w[stage]
        times = np.concatenate((self.begin_s, self.end_s))
        order = np.argsort(times, kind="stable")
        levels = self.waiting_w.sum() + np.cumsum(np.concatenate((gain, -gain))[order])
        corners = [(0.0, float(self.waiting_w.sum()))]
        for time_s, level in zip(times[order].tolist(), levels.tolist(), strict=True):
            corners += [(time_s, corners[-1][1]), (time_s, level)]
        return [*corners, (self.time_s, corners[-1][1])]


def timeline_of(problem: Problem, plan: Plan) -> Timeline:
    """Lay a plan out in time: every instruction starts as early as the DAG allows."""
    instructions = problem.dag.instructions
    mhz = plan.clocks_of(instructions)
    durations, effective_j = instruction_points(problem, mhz)
    waiting_w = problem.stage_power_w[[one.stage for one in instructions]]
    begin_s = problem.dag.starts_s(durations)[: len(instructions)]
    return Timeline(
        instructions,
        begin_s,
        begin_s + durations,
        mhz,
        problem.gpus_per_stage * (effective_j / durations + waiting_w),
        problem.gpus_per_stage * problem.stage_power_w,
        frozenset(node for node in problem.dag.critical_path(durations) if node < len(instructions)),
        problem.dag.makespan(durations),
    )


def timeline_chart(timeline: Timeline, title: str, longest_s: float) -> str:
    """Draw instructions by stage; paler means a lower clock, an outline marks the critical path.

    Args:
        timeline: Timeline to draw.
        title: Read aloud by screen readers.
        longest_s: End of the horizontal axis, to compare two charts.
    """
    stages = timeline.waiting_w.size
    chart = Chart(
        title,
        Axis("time, s", 0.0, 1.01 * longest_s),
        Axis("stage", 0.0, float(stages)),
        width=980,
        height=70 + 34 * stages,
        labels=[(stages - stage - 0.5, str(stage)) for stage in range(stages)],
    )
    for stage in range(stages):
        row = stages - stage - 1
        chart.box((0.0, timeline.time_s), (row + 0.12, row + 0.88), "wait", f"stage {stage} waits")
    highest, lowest = int(timeline.mhz.max()), int(timeline.mhz.min())
    for index, one in enumerate(timeline.instructions):
        row, mhz = stages - one.stage - 1, int(timeline.mhz[index])
        critical = index in timeline.critical
        tip = (
            f"{one.label}: {mhz} MHz, "
            f"{1e3 * (timeline.end_s[index] - timeline.begin_s[index]):.1f} ms, {timeline.power_w[index]:.0f} W"
            f"{', on the critical path' if critical else ''}"
        )
        chart.box(
            (timeline.begin_s[index], timeline.end_s[index]),
            (row + 0.12, row + 0.88),
            f"work {'backward' if one.kind.computes_backward else 'forward'}{' critical' if critical else ''}",
            tip,
            opacity=_opacity(mhz, lowest, highest),
        )
    chart.upright(timeline.time_s, "switch")
    return chart.svg()


def power_chart(timelines: list[tuple[Timeline, str]], longest_s: float) -> str:
    """Draw the power of a pipeline over one iteration, for several timelines.

    Args:
        timelines: Timelines with their drawing styles.
        longest_s: End of the horizontal axis.
    """
    steps = [(timeline.power_steps(), style) for timeline, style in timelines]
    highest = max(watts for corners, _ in steps for _, watts in corners)
    chart = Chart(
        "Power of one pipeline over the iteration",
        Axis("time, s", 0.0, 1.01 * longest_s),
        Axis("power of one pipeline, W", 0.0, 1.05 * highest),
        width=980,
        height=220,
    )
    for corners, style in steps:
        chart.area(corners, f"shade {style}")
        chart.line(corners, f"curve {style}")
    return chart.svg()


def _opacity(mhz: int, lowest: int, highest: int) -> float:
    return 1.0 if highest == lowest else 0.3 + 0.7 * (mhz - lowest) / (highest - lowest)
