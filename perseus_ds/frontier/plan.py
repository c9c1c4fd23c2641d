"""A plan: one frequency per instruction, with its time, energy and certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.dag import PipelineDag
from perseus_ds.pipeline.instruction import Instruction

__all__ = ["Plan", "count_switches", "evaluate", "instruction_points"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """A frequency for every instruction, evaluated on the DAG with measured points.

    Attributes:
        frequency_mhz: SM clock of each instruction, by stage and in the stage's program order.
        time_s: Iteration time: the makespan on the DAG.
        energy_j: Energy of the pipeline's iteration.
        lower_bound_j: No plan within this iteration time uses less energy.
        switches: Clock changes per iteration over all stages, including the change back to the start.
        switch_jitter_s: Jitter of clocks; above 0 ``time_s`` and ``energy_j`` are expected values.
        deviation_s: Standard deviation of the iteration time where micro-batches differ, else 0.
        aims_s: How long after an instruction's begin its clock is to come; negative: before. Where it is not to come at
            the begin (``aims``).
    """

    frequency_mhz: Mapping[Instruction, int]
    time_s: float
    energy_j: float
    lower_bound_j: float
    switches: int
    switch_jitter_s: float = 0.0
    deviation_s: float = 0.0
    aims_s: Mapping[Instruction, float] = field(default_factory=dict)

    def clocks_of(self, instructions: Sequence[Instruction]) -> IntArray:
        """Return the SM clock of each instruction, shape (instructions,)."""
        return np.array([self.frequency_mhz[one] for one in instructions], dtype=np.int64)

    @property
    def gap(self) -> float:
        """The certificate: the largest relative excess over the lower bound."""
        return max(0.0, self.energy_j / self.lower_bound_j - 1) if self.lower_bound_j > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and dicts."""
        return {
            "time_s": self.time_s,
            "energy_j": self.energy_j,
            "lower_bound_j": self.lower_bound_j,
            "gap": self.gap,
            "switches": self.switches,
            "switch_jitter_s": self.switch_jitter_s,
            "frequency_mhz": [one.to_row(mhz) for one, mhz in self.frequency_mhz.items()],
            "aims_s": [self.aims_s.get(one, 0.0) for one in self.frequency_mhz] if self.aims_s else [],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Rebuild a plan from ``to_json``."""
        frequency_mhz = dict(Instruction.from_row(row) for row in data["frequency_mhz"])
        return cls(
            frequency_mhz,
            data["time_s"],
            data["energy_j"],
            data["lower_bound_j"],
            data["switches"],
            data["switch_jitter_s"],
            aims_s={one: aim_s for one, aim_s in zip(frequency_mhz, data.get("aims_s", ()), strict=False) if aim_s},
        )


def instruction_points(problem: Problem, frequency_mhz: Sequence[int] | IntArray) -> tuple[FloatArray, FloatArray]:
    """Look frequencies up in the profile.

    Args:
        problem: The problem.
        frequency_mhz: Of each instruction, shape (instructions,).

    Returns:
        Duration and effective energy of each instruction.

    Raises:
        PerseusError: A frequency was not measured.
    """
    frequencies = np.asarray(frequency_mhz, dtype=np.int64)
    times, effective = np.empty(frequencies.size), np.empty(frequencies.size)
    for index, (key, curve) in enumerate(zip(problem.keys, problem.curves, strict=True)):
        rows = np.array([point[:3] for point in curve[::-1]])
        here = np.flatnonzero(problem.curve_of == index)
        at = np.minimum(np.searchsorted(rows[:, 0], frequencies[here]), len(rows) - 1)
        wrong = rows[at, 0] != frequencies[here]
        if wrong.any():
            allowed = f"frequencies of the {key} in {problem.profile.source}"
            raise PerseusError("plan-bad-value", name="frequency", value=frequencies[here][wrong][0], allowed=allowed)
        times[here] = rows[at, 1]
        effective[here] = rows[at, 2] - problem.stage_power_w[key.stage] * rows[at, 1]
    return times, effective


def evaluate(problem: Problem, frequency_mhz: Sequence[int] | IntArray, lower_bound_j: float = 0.0) -> Plan:
    """Return the plan of these frequencies, with makespan and energy from the profile's points.

    Args:
        problem: The problem.
        frequency_mhz: Of each instruction, shape (instructions,).
        lower_bound_j: Known bound for the plan's iteration time; 0 without one.

    Raises:
        PerseusError: A frequency was not measured.
    """
    times, effective = instruction_points(problem, frequency_mhz)
    time_s = problem.dag.makespan(times)
    frequencies = np.asarray(frequency_mhz, dtype=np.int64)
    order = np.concatenate(problem.dag.program_order).tolist()
    return Plan(
        {problem.dag.instructions[node]: int(frequencies[node]) for node in order},
        time_s,
        problem.energy_j(float(effective.sum()), time_s),
        lower_bound_j,
        count_switches(problem.dag, frequencies),
    )


def count_switches(dag: PipelineDag, frequency_mhz: IntArray) -> int:
    """Return the clock changes per iteration over all stages, including the change to the next iteration's start."""
    return sum(
        int(np.count_nonzero(frequency_mhz[order] != np.roll(frequency_mhz[order], 1))) for order in dag.program_order
    )
