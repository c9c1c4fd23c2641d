"""Experiment: what does waiting draw? NCCL's kernels spin on a few multiprocessors; an idle context does nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from perseus_ds.silicon.lab import Lab, Load
from perseus_ds.silicon.outcome import Limit, Outcome, judged
from perseus_ds.silicon.powers import Rows, power_w, steady

__all__ = ["judge", "measure", "waiting_power"]

NAME = "waiting power"
_BLOCKS = (0, 1, 4, 16, 32)
_LASTS_S = 5.0
_NOISE, _AGREES = 0.02, 0.05


def waiting_power(lab: Lab) -> Outcome:
    """Measure and judge."""
    return judge(measure(lab))


def measure(lab: Lab) -> dict[int, Rows]:
    """Return energy and average power while some multiprocessors spin, by their number."""
    rows = {}
    for blocks in _BLOCKS:
        if blocks:
            lab.work(Load.SPIN, _LASTS_S, blocks)
        rows[blocks] = steady(lab, ("energy_j", "average_power_w"))
    return rows


def judge(rows: Mapping[int, Rows]) -> Outcome:
    """Judge: more spinning never draws less, and the counter agrees with the driver's average power."""
    figures: dict[str, float | str] = {}
    limits = []
    before_w = 0.0
    for blocks, taken in rows.items():
        counter_w = power_w(taken, taken[0][0], taken[-1][0])
        average_w = statistics.median(values[1] for _, values in taken)
        what = f"{blocks} multiprocessors" if blocks else "idle"
        figures |= {f"{what}_w": counter_w, f"{what}_average_power_w": average_w}
        rises = counter_w >= before_w * (1.0 - _NOISE)
        limits.append(Limit(rises, f"{what}: {counter_w:.1f} W, after {before_w:.1f} W with less to do"))
        agrees = math.isnan(average_w) or abs(counter_w / average_w - 1.0) < _AGREES
        limits.append(Limit(agrees, f"{what}: the counter tells {counter_w:.1f} W, the driver {average_w:.1f} W"))
        before_w = counter_w
    return judged(NAME, figures, *limits)
