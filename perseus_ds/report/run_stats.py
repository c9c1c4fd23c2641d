"""The measurements of every iteration and their summary. Only the coordinator keeps them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from perseus_ds.coordination.events import StragglerChanged
from perseus_ds.coordination.phases import Phase
from perseus_ds.report.straggler_records import StragglerRecord, StragglerRecords
from perseus_ds.report.typical import typical_energies_j

__all__ = ["Measurement", "RunStats"]


# Iterations kept: a training of weeks must neither fill the memory nor be summed up for ever longer.
_KEPT = 4096

_RECENT = 8  # the latest refreshed baselines, which count
_LEAST_AROUND = 2  # iterations of the plan on either side of one: fewer tell too little

_COMPARED = (Phase.BASELINE, Phase.ENFORCING)
_ENDLESS = (*_COMPARED, Phase.OBSERVING)


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
        stragglers: All so far.
        earlier_baseline: The baseline, if not measured as such: an earlier run's, or this one's scaled to changed
            work.
    """

    stragglers: StragglerRecords = field(default_factory=StragglerRecords)
    earlier_baseline: Measurement | None = None
    _predicted: Measurement | None = None
    _highest_s: float = 0.0
    _predicted_saving: float | None = None
    _ages: Callable[[float], float] | None = None
    _planned_beside: Measurement | None = None  # the baseline when the plan was made
    _rows: dict[int, _Iteration] = field(default_factory=dict)
    _compared: deque[frozenset[int]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _forgotten_late_switches: float = 0.0
    _planned_from: float = math.inf

    def begin(self, iteration: int, phase: Phase, steady: bool, planned: tuple[float, float] | None = None) -> None:
        """Record an iteration's phase, whether it is like the one before, and its plans' time and energy."""
        self._rows[iteration] = _Iteration(phase, steady, planned=planned)
        if phase is Phase.ENFORCING:
            self._planned_from = min(self._planned_from, iteration)
        if phase in _ENDLESS and len(self._rows) > _KEPT:
            # Baselines are rare once there are plans, and kept.
            kept = frozenset().union(*self._compared)
            later = (
                number
                for number, row in self._rows.items()
                if row.phase in (Phase.ENFORCING, Phase.OBSERVING) and number not in kept
            )
            oldest = next(later, None) or next(number for number, row in self._rows.items() if row.phase is phase)
            self._forgotten_late_switches += self._rows.pop(oldest).late_switches

    def measured(
        self, iteration: int, time_s: float, switches: float, late_switches: float, share_at_clock: float = math.nan
    ) -> None:
        """Record an iteration's time, clock switches (all ranks of a pipeline), and share at the planned clock."""
        if row := self._rows.get(iteration):
            row.time_s, row.switches = time_s, switches
            row.late_switches, row.share_at_clock = late_switches, share_at_clock

    def straggler_changed(
        self, event: StragglerChanged, recovery_iterations: int
    ) -> tuple[list[StragglerRecord], list[StragglerRecord]]:
        """Return the stragglers that have begun, and those that have ended; see ``StragglerRecords.changed``.

        Iterations in which one was slow already, and not noticed yet, are not like the others.
        """
        begun, ended = self.stragglers.changed(event, recovery_iterations)
        if begun:
            onset = min(one.onset_iteration for one in begun)
            for number, row in self._rows.items():
                row.steady = row.steady and number < onset
        return begun, ended

    def energy(self, iteration: int, energy_j: float) -> None:
        """Record an iteration's energy, of one pipeline."""
        if row := self._rows.get(iteration):
            row.energy_j = energy_j

    def take_baseline(self, energies_j: Mapping[int, float]) -> None:
        """Count these iterations alone as the baseline, with these energies of one pipeline."""
        for number, row in self._rows.items():
            if row.phase is Phase.BASELINE:
                row.steady, row.energy_j = number in energies_j, energies_j.get(number, row.energy_j)

    def refreshed(self, iterations: range, energies_j: Mapping[int, float]) -> dict[str, float] | None:
        """Take in a refreshed baseline. From then on, the latest ones are what the plan is compared with.

        Args:
            iterations: Those at the default clocks.
            energies_j: Of one pipeline, in these iterations and in others around them.

        Returns:
            Its figures beside those of the plan's iterations around it; None where something else went on there.
        """
        rows = {n: row for n, row in self._rows.items() if n in energies_j and row.steady and row.time_s is not None}
        base = [n for n, row in rows.items() if n in iterations and row.phase is Phase.BASELINE]
        planned = [n for n, row in rows.items() if row.phase is Phase.ENFORCING]
        before, after = ([n for n in planned if (n < iterations.start) is earlier] for earlier in (True, False))
        # As many on either side: GPUs get warmer all the time.
        around = min(len(before), len(after))
        if not base or around < _LEAST_AROUND:
            return None
        compared = [*base, *before[-around:], *after[:around]]
        for number in compared:
            rows[number].energy_j = energies_j[number]
        baseline, plan = (self._typical([rows[n] for n in some]) for some in (base, compared[len(base) :]))
        if baseline is None or plan is None:
            return None
        self._compared.append(frozenset(compared))
        self.earlier_baseline = None
        return {
            "iteration_time_s": baseline.iteration_time_s,
            "energy_j": baseline.energy_j,
            "plan_time_s": plan.iteration_time_s,
            "plan_energy_j": plan.energy_j,
            "saving": 1.0 - plan.energy_j / baseline.energy_j,
        }

    @property
    def last_iteration(self) -> int:
        """The newest iteration, -1 before the first."""
        return max(self._rows, default=-1)

    def typical(self, phase: Phase) -> Measurement | None:
        """Return median time and typical energy of a phase's steady iterations, None without any.

        Where baseline and plan are compared, it is the mean over the comparisons.
        """
        if phase not in _COMPARED or not self._compared:
            return self._typical([row for n, row in self._rows.items() if row.phase is phase and self._counts(n)])
        rows = ([self._rows[number] for number in one if self._rows[number].phase is phase] for one in self._compared)
        found = [one for one in map(self._typical, rows) if one is not None]
        return Measurement(fmean(one.iteration_time_s for one in found), fmean(one.energy_j for one in found))

    def _counts(self, number: int) -> bool:
        """Whether an iteration is like its phase's others, and one by which baseline and plan are compared."""
        row = self._rows[number]
        if row.phase in _COMPARED and self._compared:
            return row.steady and any(number in compared for compared in self._compared)
        # A refresh that nothing is compared with is of GPUs warmer than most of the plan's iterations were.
        return row.steady and not (row.phase is Phase.BASELINE and number > self._planned_from)

    @staticmethod
    def _typical(rows: Sequence[_Iteration]) -> Measurement | None:
        times = [row.time_s for row in rows if row.time_s is not None]
        energies = typical_energies_j((row.time_s, row.energy_j) for row in rows)
        return Measurement(median(times), fmean(energies)) if times and energies else None

    @property
    def baseline(self) -> Measurement | None:
        """The recent baseline of this run, or of the earlier run that it resumes; None before both."""
        return self.earlier_baseline or self.typical(Phase.BASELINE)

    def plan(self, predicted: Measurement, highest: Measurement, ages: Callable[[float], float]) -> None:
        """Take the prediction of a new plan without stragglers.

        Args:
            predicted: Its time and energy.
            highest: The same at the highest clock.
            ages: From the part by which the baseline gets slower, as GPUs warm up, to the plan's.
        """
        self._predicted, self._planned_beside = predicted, self.baseline
        self._highest_s, self._ages = highest.iteration_time_s, ages
        self._predicted_saving = 1.0 - predicted.energy_j / highest.energy_j

    def _predicted_now(self, baseline: Measurement | None) -> Measurement | None:
        """Return the prediction, changed as the baseline has changed since the plan was made: GPUs get warm.

        The profile's highest clocks may be of warmer GPUs than that baseline was. So whatever lies between the two is
        no change. What the saving leaves of the baseline is the energy: so both leave out the same.
        """
        planned, then, ages, saving = self._predicted, self._planned_beside, self._ages, self._predicted_saving
        if planned is None or ages is None or saving is None or then is None or baseline is None:
            return planned
        now_s = baseline.iteration_time_s
        same_s = sorted((then.iteration_time_s, self._highest_s, now_s))[1]
        return Measurement(
            planned.iteration_time_s * (1.0 + ages(now_s / same_s - 1.0)),
            (1.0 - saving) * baseline.energy_j,
        )

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
        self._compared.clear()
        for row in self._rows.values():
            row.steady = row.steady and row.phase is not Phase.ENFORCING

    def count(self, phase: Phase) -> int:
        """Return the number of iterations of a phase."""
        return sum(row.phase is phase for row in self._rows.values())

    def series(self) -> list[dict[str, Any]]:
        """Return all rows for the report, by iteration."""
        return [
            {
                "iteration": iteration,
                "phase": row.phase.value,
                "steady": self._counts(iteration),
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
        predicted = self._predicted_now(baseline)
        enforced = [row for row in self._rows.values() if row.phase is Phase.ENFORCING and row.time_s is not None]
        shares = [row.share_at_clock for row in enforced if not math.isnan(row.share_at_clock)]
        saving = slowdown = None
        if baseline is not None and measured is not None:
            saving = 1.0 - measured.energy_j / baseline.energy_j
            slowdown = measured.iteration_time_s / baseline.iteration_time_s - 1.0
        return {
            **about,
            "baseline": baseline and baseline.to_json(),
            "predicted": predicted and predicted.to_json(),
            "measured": measured and measured.to_json(),
            "predicted_saving": self._predicted_saving,
            "saving": saving,
            "slowdown": slowdown,
            "profiling_iterations": self.count(Phase.PROFILING),
            "switches_per_iteration": _mean(row.switches for row in enforced),
            "late_switches": self._forgotten_late_switches + sum(row.late_switches for row in enforced),
            "share_at_clock": median(shares) if shares else None,
            "stragglers": [vars(straggler) for straggler in self.stragglers.records],
        }


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
