"""What following a power signal costs a job: its plans beside one clock cap on all GPUs, on the same curves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from perseus_ds.files import read_text
from perseus_ds.frontier.objectives import average_power_w
from perseus_ds.frontier.plan import Plan
from perseus_ds.messages import PerseusError
from perseus_ds.objective_text import objective_values

__all__ = ["Follower", "MeanIteration", "SignalStep", "StepCost", "mean_within", "read_signal"]

_COLUMNS = ("iterations", "power")
_ALLOWED_POWER = "a share such as 75%, or a power such as 12kW"
_MOST_ITERATIONS = 10**9


class SignalStep(NamedTuple):
    """One row of a signal.

    Attributes:
        iterations: For how many iterations it holds.
        share: Allowed power as a share of the baseline's; None: ``power_w`` says it.
        power_w: Allowed power of the whole job; 0 beside a share.
    """

    iterations: int
    share: float | None
    power_w: float = 0.0


class MeanIteration(NamedTuple):
    """The mean of iterations that alternate between two neighbouring plans.

    Attributes:
        time_s: Iteration time.
        energy_j: Energy of one pipeline's iteration.
        met: Whether it draws no more than allowed.
    """

    time_s: float
    energy_j: float
    met: bool


@dataclass(frozen=True)
class StepCost:
    """What one row costs.

    Attributes:
        iterations: For how many iterations it holds.
        target_w: Allowed power of the whole job.
        power_w: The job's power.
        slowdown: Iteration time over the baseline's, less 1.
        energy_j: The job's energy of one iteration.
        uniform_slowdown: The slowdown with one clock cap on all GPUs instead.
        uniform_energy_j: The energy with it.
        met: Whether the job draws no more than allowed.
        uniform_met: The same with the cap.
    """

    iterations: int
    target_w: float
    power_w: float
    slowdown: float
    energy_j: float
    uniform_slowdown: float
    uniform_energy_j: float
    met: bool
    uniform_met: bool


@dataclass(frozen=True)
class Follower:
    """A job that follows a signal.

    Attributes:
        plans: One pipeline's plans, by increasing time and falling power.
        caps: The same pipeline under one clock cap after the other, by increasing time.
        pipelines: How many there are.
    """

    plans: Sequence[Plan]
    caps: Sequence[Plan]
    pipelines: int

    def cost(self, step: SignalStep) -> StepCost:
        """Return what a row costs, on average over iterations that alternate between neighbouring plans.

        Args:
            step: The row. Shares are of the power without any cap.
        """
        baseline = self.caps[0]
        allowed_w = step.power_w / self.pipelines if step.share is None else step.share * average_power_w(baseline)
        ours, uniform = (
            mean_within([(plan.time_s, plan.energy_j) for plan in plans], allowed_w)
            for plans in (self.plans, self.caps)
        )
        return StepCost(
            step.iterations,
            allowed_w * self.pipelines,
            ours.energy_j / ours.time_s * self.pipelines,
            ours.time_s / baseline.time_s - 1.0,
            ours.energy_j * self.pipelines,
            uniform.time_s / baseline.time_s - 1.0,
            uniform.energy_j * self.pipelines,
            ours.met,
            uniform.met,
        )


def read_signal(path: str | Path) -> list[SignalStep]:
    """Read a signal: a CSV file with the columns ``iterations,power``.

    Args:
        path: The file. A power is in watts, as in an objective, or a share of the baseline's such as ``75%``.

    Raises:
        PerseusError: One line with the file, the row, the column, and the allowed values.
    """
    file = Path(path)
    try:
        lines = list(csv.reader(read_text(file).removeprefix("\ufeff").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        detail = error.strerror if isinstance(error, OSError) else error
        raise PerseusError("signal-unreadable", file=file, detail=detail) from error
    header = [name.strip() for name in lines[0]] if lines else []
    rows = [(number, cells) for number, cells in enumerate(lines[1:], start=2) if cells]
    if not (set(_COLUMNS) <= set(header) and rows):
        raise PerseusError("signal-unreadable", file=file, detail="a header or all rows are missing")
    return [_step(file, number, dict(zip(header, cells, strict=False))) for number, cells in rows]


def mean_within(points: Sequence[tuple[float, float]], allowed_w: float) -> MeanIteration:
    """Return the fastest mean of two neighbours that draws no more than allowed, else the least power there is.

    Args:
        points: Time and energy of plans, by increasing time.
        allowed_w: Average power.
    """
    if points[0][1] <= allowed_w * points[0][0]:
        return MeanIteration(*points[0], True)
    for (faster_s, faster_j), (slower_s, slower_j) in pairwise(points):
        if slower_j <= allowed_w * slower_s:
            time_s, energy_j = slower_s - faster_s, slower_j - faster_j
            # So much of the slower one that energy over time is the allowed power.
            part = (faster_j - allowed_w * faster_s) / (allowed_w * time_s - energy_j)
            return MeanIteration(faster_s + part * time_s, faster_j + part * energy_j, True)
    return MeanIteration(*min(points, key=lambda point: point[1] / point[0]), False)


def _step(file: Path, number: int, cells: dict[str, str]) -> SignalStep:
    iterations, power = (cells.get(name, "").strip() for name in _COLUMNS)

    def wrong(column: str, allowed: str) -> PerseusError:
        value = cells.get(column, "")
        return PerseusError("profile-bad-cell", file=file, row=number, column=column, value=value, allowed=allowed)

    if not (iterations.isdecimal() and 1 <= int(iterations[:12]) <= _MOST_ITERATIONS):
        raise wrong("iterations", f"a whole number from 1 to {_MOST_ITERATIONS:,}")
    try:
        watts = float(objective_values(f"power={power.removesuffix('%')}")["power_w"])
    except ValueError as error:
        raise wrong("power", _ALLOWED_POWER) from error
    return SignalStep(int(iterations), watts / 100) if power.endswith("%") else SignalStep(int(iterations), None, watts)
