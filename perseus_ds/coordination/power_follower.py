"""Follows a power: measured power corrects what the plans predict. Equal rounds give equal answers on all ranks.

Two corrections. The bias is what the job draws over what its plans predict, on average. The debt is the energy that
the job has used beyond the limit since the limit holds. It is paid back over some iterations, so the job alternates
between two neighbouring plans, and its mean power is the limit's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perseus_ds.coordination.job_curve import JobTarget
from perseus_ds.coordination.rounds import RoundResult

__all__ = ["PowerFollower"]

_PAYBACK = 8  # iterations over which a debt is paid back
_MOST_OWED = 0.5  # of an iteration's energy: what one order may carry from the past
_MOST_OFF = 0.04  # of the limit: how far a debt may move what is looked for
_MEMORY = 10  # iterations that the bias is the mean of
_MOST_BIAS = 2.0


@dataclass(frozen=True)
class _Running:
    """What an iteration was expected to do when it began.

    Attributes:
        expected: The point of the job's curve.
        fastest: No point is faster.
        limit_w: The limit; None where its energy counts against none.
    """

    expected: JobTarget
    fastest: bool
    limit_w: float | None


class PowerFollower:
    """Follows a limit on the job's power.

    Args:
        ramp_w_per_s: The limit moves no faster; None: at once.

    Attributes:
        limit_w: The limit in effect; None: there is none.
    """

    def __init__(self, ramp_w_per_s: float | None = None) -> None:
        self._ramp_w_per_s = ramp_w_per_s
        self._goal_w: float | None = None
        self._bias, self._counted = 1.0, 0
        self._owed_j = 0.0
        self._running: dict[int, _Running] = {}
        self._times_s: dict[int, float] = {}
        self.limit_w: float | None = None

    @property
    def on_a_ramp(self) -> bool:
        """Whether the limit is still on its way."""
        return self.limit_w is not None and self.limit_w != self._goal_w

    def measured_w(self, predicted_w: float) -> float:
        """Return what a plan is likely to draw."""
        return predicted_w * self._bias

    def pursue(self, goal_w: float | None, drawn_w: float) -> None:
        """Take a new limit.

        Args:
            goal_w: The limit, in the end; None: none.
            drawn_w: What the plan in force is predicted to draw.
        """
        if goal_w == self._goal_w:
            return
        if goal_w is None and self._ramp_w_per_s is None:
            self.limit_w = None
        elif goal_w is not None:
            usual_w = self.measured_w(drawn_w) if self._ramp_w_per_s else goal_w
            self.limit_w = self._moved(usual_w if self.limit_w is None else self.limit_w, goal_w, 0.0)
        self._goal_w = goal_w
        self.restart()

    def restart(self) -> None:
        """Forget the debt, and what is running: it belongs to what was before."""
        self._owed_j = 0.0
        self._running.clear()

    def hear(self, round_result: RoundResult) -> None:
        """Process a round: the limit moves, and the measured power of an iteration takes the place of the expected."""
        iteration, time_s = round_result.iteration, round_result.iteration_time_s
        if self.limit_w is not None and time_s == time_s:
            goal_w = math.inf if self._goal_w is None else self._goal_w
            self.limit_w = self._moved(self.limit_w, goal_w, time_s)
        before_s = self._times_s.get(iteration - 1, math.nan)
        self._times_s = {iteration: time_s}
        for number in [number for number in self._running if number < iteration - 1]:
            del self._running[number]
        if (known := self._running.pop(iteration - 1, None)) is None:
            return
        power_w = float(round_result.field("energy_j").sum()) / before_s
        if not 0.0 < power_w < math.inf:
            power_w, before_s = self.measured_w(known.expected.power_w), known.expected.time_s
        else:
            self._learn(power_w / known.expected.power_w)
        if known.limit_w is None:
            return
        owed_j = (power_w - known.limit_w) * before_s
        # At an end of the plans nothing can be made up for, and nothing is owed.
        if not (known.fastest and owed_j < 0) and not (not known.expected.met and owed_j > 0):
            most_j = _MOST_OWED * known.limit_w * before_s
            self._owed_j = min(max(self._owed_j + owed_j, -most_j), most_j)

    def aim_w(self, time_s: float) -> float | None:
        """Return the power to look for among the plans' predictions; None: any.

        Args:
            time_s: About how long an iteration takes.
        """
        if (limit_w := self.limit_w) is None:
            return None
        owed_j = self._owed_j
        for one in self._running.values():
            if one.limit_w is not None and one.expected.met and not one.fastest:
                owed_j += (self.measured_w(one.expected.power_w) - one.limit_w) * one.expected.time_s
        most_w = _MOST_OFF * limit_w
        return (limit_w - min(max(owed_j / (_PAYBACK * time_s), -most_w), most_w)) / self._bias

    def release(self) -> None:
        """The limit of a ramp that leads back to no limit holds nothing back any more."""
        self.limit_w = None

    def began(self, iteration: int, expected: JobTarget, fastest: bool) -> None:
        """An iteration begins.

        Args:
            iteration: Its number.
            expected: The point of the job's curve that it runs at.
            fastest: No point is faster.
        """
        self._running[iteration] = _Running(expected, fastest, self.limit_w)

    def _learn(self, ratio: float) -> None:
        self._counted = min(self._counted + 1, _MEMORY)
        self._bias += (min(max(ratio, 1 / _MOST_BIAS), _MOST_BIAS) - self._bias) / self._counted

    def _moved(self, from_w: float, goal_w: float, time_s: float) -> float:
        """Return the limit after some time."""
        if self._ramp_w_per_s is None:
            return goal_w
        step_w = self._ramp_w_per_s * time_s
        return max(from_w - step_w, min(from_w + step_w, goal_w))
