"""What was measured, iteration by iteration, and what it comes to. Kept by the coordinator alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import Any

__all__ = ["Measurement", "Phase", "RunStats", "StragglerRecord"]


# Iterations kept: a training of weeks must neither fill the memory nor be summed up for ever longer.
_KEPT = 4096


class Phase(str, Enum):
    """What Perseus does in an iteration."""

    WARMUP = "warm-up"
    BASELINE = "baseline"
    PROFILING = "profiling"
    SOLVING = "solving"
    ENFORCING = "enforcing"
    OBSERVING = "observing"  # plans are ready, but no clocks are set


_ENDLESS = (Phase.BASELINE, Phase.OBSERVING, Phase.ENFORCING)


@dataclass(frozen=True)
class Measurement:
    """One of baseline, predicted, measured: one pipeline's iteration.

    Attributes:
        iteration_time_s: Median seconds.
        energy_j: Median joules of one pipeline.
    """

    iteration_time_s: float
    energy_j: float

    @property
    def power_w(self) -> float:
        """Average watts of one pipeline."""
        return self.energy_j / self.iteration_time_s

    def to_json(self) -> dict[str, float]:
        """Return the three figures of ``summary.json``."""
        return {"iteration_time_s": self.iteration_time_s, "energy_j": self.energy_j, "power_w": self.power_w}


@dataclass
class StragglerRecord:
    """One straggler from its onset to everybody's return; None while not yet."""

    pipeline: int
    stage: int
    slowdown: float
    onset_iteration: int
    switched_iteration: int | None = None
    t_prime_s: float | None = None
    t_opt_s: float | None = None
    recovered_iteration: int | None = None
    returned_iteration: int | None = None


@dataclass
class _Iteration:
    phase: Phase
    steady: bool
    time_s: float | None = None
    energy_j: float | None = None
    switches: float = 0.0
    late_switches: float = 0.0


@dataclass
class RunStats:
    """Rows by training iteration; of an endless phase only the latest few thousand.

    Attributes:
        stragglers: In order of onset.
        predicted: What the plan in force without stragglers promises.
        earlier_baseline: What counts as the baseline: an earlier run's, where this one needs none of its own, or this
            one's as the work has become since.
    """

    stragglers: list[StragglerRecord] = field(default_factory=list)
    predicted: Measurement | None = None
    predicted_saving: float | None = None
    earlier_baseline: Measurement | None = None
    _rows: dict[int, _Iteration] = field(default_factory=dict)
    _forgotten_late_switches: float = 0.0

    def begin(self, iteration: int, phase: Phase, steady: bool) -> None:
        """Note what an iteration is: its phase, and whether it is like the one before."""
        self._rows[iteration] = _Iteration(phase, steady)
        if phase in _ENDLESS and len(self._rows) > _KEPT:
            oldest = next(number for number, row in self._rows.items() if row.phase is phase)
            self._forgotten_late_switches += self._rows.pop(oldest).late_switches

    def measured(self, iteration: int, time_s: float, switches: float, late_switches: float) -> None:
        """Note an iteration's time and clock switches (all ranks of a pipeline)."""
        if row := self._rows.get(iteration):
            row.time_s, row.switches, row.late_switches = time_s, switches, late_switches

    def energy(self, iteration: int, energy_j: float) -> None:
        """Note an iteration's energy, of one pipeline."""
        if row := self._rows.get(iteration):
            row.energy_j = energy_j

    @property
    def last_iteration(self) -> int:
        """The newest iteration, -1 before the first."""
        return max(self._rows, default=-1)

    def medians(self, phase: Phase) -> Measurement | None:
        """Return the medians over the steady iterations of a phase, None without any."""
        rows = [row for row in self._rows.values() if row.phase is phase and row.steady]
        times = [row.time_s for row in rows if row.time_s is not None]
        energies = [row.energy_j for row in rows if row.energy_j is not None and row.energy_j == row.energy_j]
        return Measurement(median(times), median(energies)) if times and energies else None

    @property
    def baseline(self) -> Measurement | None:
        """This run's baseline, or the earlier run's that it goes on from; None before both."""
        return self.earlier_baseline or self.medians(Phase.BASELINE)

    def replanned(self, time_ratio: float, energy_ratio: float) -> None:
        """Iterations have become more, or less, work: the baseline becomes theirs, and they alone count from now on.

        Args:
            time_ratio: Iteration time at the highest clock, over what it was.
            energy_ratio: The same of energy.
        """
        if (baseline := self.baseline) is not None:
            self.earlier_baseline = Measurement(
                time_ratio * baseline.iteration_time_s, energy_ratio * baseline.energy_j
            )
        for row in self._rows.values():
            row.steady = row.steady and row.phase is not Phase.ENFORCING

    def count(self, phase: Phase) -> int:
        """Return how many iterations a phase had."""
        return sum(row.phase is phase for row in self._rows.values())

    def series(self) -> list[dict[str, Any]]:
        """Return all rows for the report, by iteration."""
        return [
            {
                "iteration": iteration,
                "phase": row.phase.value,
                "steady": row.steady,
                "iteration_time_s": row.time_s,
                "energy_j": row.energy_j if row.energy_j == row.energy_j else None,
                "switches": row.switches,
                "late_switches": row.late_switches,
            }
            for iteration, row in sorted(self._rows.items())
        ]

    def summary(self, **about: Any) -> dict[str, Any]:
        """Return the content of ``summary.json``.

        Args:
            **about: What does not come from measuring: simulated, framework, stages, ….
        """
        baseline, measured = self.baseline, self.medians(Phase.ENFORCING)
        enforced = [row for row in self._rows.values() if row.phase is Phase.ENFORCING and row.time_s is not None]
        saving = slowdown = None
        if baseline is not None and measured is not None:
            saving = 1.0 - measured.energy_j / baseline.energy_j
            slowdown = measured.iteration_time_s / baseline.iteration_time_s - 1.0
        return {
            **about,
            "baseline": baseline and baseline.to_json(),
            "predicted": self.predicted and self.predicted.to_json(),
            "measured": measured and measured.to_json(),
            "predicted_saving": self.predicted_saving,
            "saving": saving,
            "slowdown": slowdown,
            "profiling_iterations": self.count(Phase.PROFILING),
            "switches_per_iteration": _mean(row.switches for row in enforced),
            "late_switches": self._forgotten_late_switches + sum(row.late_switches for row in enforced),
            "stragglers": [vars(straggler) for straggler in self.stragglers],
        }


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
