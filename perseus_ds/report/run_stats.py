"""The measurements of every iteration and their summary. Only the coordinator keeps them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from perseus_ds.coordination.events import PlanSwitched, StragglerChanged
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.stage_condition import ceiling_mhz
from perseus_ds.report.typical import typical_energies_j

__all__ = ["Measurement", "RunStats", "StragglerRecord", "described"]


# Iterations kept: a training of weeks must neither fill the memory nor be summed up for ever longer.
_KEPT = 4096

# Refreshed baselines that replace the first one, and the latest of them that count.
_ENOUGH_REFRESHED, _RECENT = 3, 8
# Iterations of the plan before a refresh that it is compared with.
_NEIGHBOURS = 16

_ENDLESS = (Phase.BASELINE, Phase.OBSERVING, Phase.ENFORCING)


@dataclass(frozen=True)
class Measurement:
    """One of baseline, predicted, measured: one pipeline's iteration.

    Attributes:
        iteration_time_s: Median seconds.
        energy_j: Mean joules of one pipeline.
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
    """One straggler from its onset until all ranks have returned; None for times still to come."""

    pipeline: int
    stage: int
    slowdown: float | None
    onset_iteration: int
    ceiling_mhz: int | None = None
    switched_iteration: int | None = None
    t_prime_s: float | None = None
    t_opt_s: float | None = None
    recovered_iteration: int | None = None
    returned_iteration: int | None = None

    def given(self) -> dict[str, Any]:
        """Return what is known of it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class _Iteration:
    phase: Phase
    steady: bool
    time_s: float | None = None
    energy_j: float | None = None
    switches: float = 0.0
    late_switches: float = 0.0
    share_at_clock: float = math.nan
    planned: tuple[float, float] | None = None


@dataclass
class RunStats:
    """Rows by training iteration; an endless phase keeps only the latest few thousand.

    Attributes:
        stragglers: In order of onset.
        predicted: Prediction of the current plan without stragglers.
        earlier_baseline: The baseline, if not measured as such: an earlier run's, or this one's scaled to changed
            work.
    """

    stragglers: list[StragglerRecord] = field(default_factory=list)
    predicted: Measurement | None = None
    predicted_saving: float | None = None
    earlier_baseline: Measurement | None = None
    _rows: dict[int, _Iteration] = field(default_factory=dict)
    _refreshed: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _forgotten_late_switches: float = 0.0

    def begin(self, iteration: int, phase: Phase, steady: bool, planned: tuple[float, float] | None = None) -> None:
        """Record an iteration's phase, whether it is like the one before, and its plans' time and energy."""
        self._rows[iteration] = _Iteration(phase, steady, planned=planned)
        if phase in _ENDLESS and len(self._rows) > _KEPT:
            # Baselines are rare once there are plans, and kept.
            later = (number for number, row in self._rows.items() if row.phase in (Phase.ENFORCING, Phase.OBSERVING))
            oldest = next(later, None) or next(number for number, row in self._rows.items() if row.phase is phase)
            self._forgotten_late_switches += self._rows.pop(oldest).late_switches

    def measured(
        self, iteration: int, time_s: float, switches: float, late_switches: float, share_at_clock: float = math.nan
    ) -> None:
        """Record an iteration's time, clock switches (all ranks of a pipeline), and share at the planned clock."""
        if row := self._rows.get(iteration):
            row.time_s, row.switches = time_s, switches
            row.late_switches, row.share_at_clock = late_switches, share_at_clock

    def energy(self, iteration: int, energy_j: float) -> None:
        """Record an iteration's energy, of one pipeline."""
        if row := self._rows.get(iteration):
            row.energy_j = energy_j

    def take_baseline(self, energies_j: Mapping[int, float]) -> None:
        """Count these iterations alone as the baseline, with these energies of one pipeline."""
        for number, row in self._rows.items():
            if row.phase is Phase.BASELINE:
                row.steady, row.energy_j = number in energies_j, energies_j.get(number, row.energy_j)

    def refreshed(self, iteration: int) -> dict[str, float] | None:
        """Take in the energy of an iteration that has refreshed the baseline.

        Args:
            iteration: Its number; its time and energy are known.

        Returns:
            Its figures beside those of the plan's iterations before it; None if it is no refreshed baseline.
        """
        row = self._rows.get(iteration)
        if row is None or row.phase is not Phase.BASELINE or not row.steady or not row.energy_j:
            return None
        before = [one for number, one in self._rows.items() if number < iteration]
        neighbours = self._typical([one for one in before if one.phase is Phase.ENFORCING][-_NEIGHBOURS:])
        if neighbours is None or row.time_s is None or row.energy_j != row.energy_j:
            return None
        self._refreshed.append(iteration)
        if len(self._refreshed) >= _ENOUGH_REFRESHED:
            self.earlier_baseline = None
            for number, one in self._rows.items():
                one.steady = one.steady and (one.phase is not Phase.BASELINE or number in self._refreshed)
        return {
            "iteration_time_s": row.time_s,
            "energy_j": row.energy_j,
            "plan_time_s": neighbours.iteration_time_s,
            "plan_energy_j": neighbours.energy_j,
            "saving": 1.0 - neighbours.energy_j / row.energy_j,
        }

    @property
    def last_iteration(self) -> int:
        """The newest iteration, -1 before the first."""
        return max(self._rows, default=-1)

    def typical(self, phase: Phase) -> Measurement | None:
        """Return median time and typical energy of a phase's steady iterations, None without any."""
        return self._typical([row for row in self._rows.values() if row.phase is phase])

    @staticmethod
    def _typical(phase_rows: Sequence[_Iteration]) -> Measurement | None:
        rows = [row for row in phase_rows if row.steady]
        times = [row.time_s for row in rows if row.time_s is not None]
        energies = typical_energies_j((row.time_s, row.energy_j) for row in rows)
        return Measurement(median(times), fmean(energies)) if times and energies else None

    @property
    def baseline(self) -> Measurement | None:
        """The recent baseline of this run, or of the earlier run that it resumes; None before both."""
        return self.earlier_baseline or self.typical(Phase.BASELINE)

    def replanned(self, time_ratio: float, energy_ratio: float) -> None:
        """The work per iteration has changed: scale the baseline, and count only iterations from now on.

        Args:
            time_ratio: New over old iteration time at the highest clock.
            energy_ratio: The same for energy.
        """
        if (baseline := self.baseline) is not None:
            self.earlier_baseline = Measurement(
                time_ratio * baseline.iteration_time_s, energy_ratio * baseline.energy_j
            )
        self._refreshed.clear()
        for row in self._rows.values():
            row.steady = row.steady and row.phase is not Phase.ENFORCING

    def note_stragglers(
        self, change: StragglerChanged, recovery_iterations: int
    ) -> tuple[list[StragglerRecord], list[StragglerRecord]]:
        """Record stages that have become slow, or normal again.

        Args:
            change: The state of all stages.
            recovery_iterations: Normal iterations before a recovery counts.

        Returns:
            The records that begin, and those that end.
        """
        begun, ended = [], []
        lasting = [record for record in self.stragglers if record.recovered_iteration is None]
        known = {(record.pipeline, record.stage) for record in lasting}
        for pipeline, slowdowns in enumerate(change.slowdowns):
            for stage, slowdown in enumerate(slowdowns):
                if slowdown != 1.0 and (pipeline, stage) not in known:
                    onset = max(change.seen_iteration - change.lasted[pipeline][stage] + 1, 0)
                    held_mhz = ceiling_mhz(slowdown)
                    factor = slowdown if held_mhz is None else None
                    record = StragglerRecord(pipeline, stage, factor, onset, held_mhz, t_prime_s=change.t_prime_s)
                    begun.append(record)
        for record in lasting:
            if change.slowdowns[record.pipeline][record.stage] == 1.0:
                record.recovered_iteration = max(change.seen_iteration - recovery_iterations + 1, 0)
                ended.append(record)
        self.stragglers += begun
        return begun, ended

    def note_switch(self, switch: PlanSwitched) -> None:
        """Record when all ranks have responded to the stragglers, and when they have returned."""
        for record in self.stragglers:
            if record.recovered_iteration is not None and record.returned_iteration is None:
                record.returned_iteration = switch.iteration
            elif record.recovered_iteration is None and record.switched_iteration is None:
                record.switched_iteration = switch.iteration
                record.t_opt_s = max(plan.time_s for plan in switch.plans)

    def count(self, phase: Phase) -> int:
        """Return the number of iterations of a phase."""
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
                "planned_time_s": row.planned and row.planned[0],
                "planned_energy_j": row.planned and row.planned[1],
            }
            for iteration, row in sorted(self._rows.items())
        ]

    def summary(self, **about: Any) -> dict[str, Any]:
        """Return the content of ``summary.json``.

        Args:
            **about: Entries that are not measured: simulated, framework, stages, ….
        """
        baseline, measured = self.baseline, self.typical(Phase.ENFORCING)
        enforced = [row for row in self._rows.values() if row.phase is Phase.ENFORCING and row.time_s is not None]
        shares = [row.share_at_clock for row in enforced if not math.isnan(row.share_at_clock)]
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
            "share_at_clock": median(shares) if shares else None,
            "stragglers": [vars(straggler) for straggler in self.stragglers],
        }


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def described(condition: float) -> float | str:
    """Return a stage's slowdown, or its ceiling."""
    held_mhz = ceiling_mhz(condition)
    return condition if held_mhz is None else f"{held_mhz} MHz"
