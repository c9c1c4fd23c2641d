"""Experiment: a minute at the power limit, then bursts after idling. Neither may look like a straggler or a drift."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from perseus_ds.config import StragglerConfig
from perseus_ds.coordination.straggler import DriftWatch, StragglerTracker
from perseus_ds.silicon.lab import Event, Host, Lab, Load
from perseus_ds.silicon.outcome import Limit, Outcome, judged, percentile
from perseus_ds.silicon.powers import Rows, power_w

__all__ = ["Minute", "judge", "measure", "power_limit"]

NAME = "power limit"
_PIECE_S, _MINUTE_S = 0.25, 60.0
_SETTLES, _BASELINE = 20, 20  # pieces; the baseline is what a job's iterations are compared with
_BURSTS, _BURST_S, _IDLE_S = 4, 2.0, 2.0
_READ = ("energy_j", "sm_clock_mhz", "reasons")
_NEAR = 0.03


@dataclass(frozen=True)
class Minute:
    """What was seen.

    Attributes:
        pieces_s: Time of each piece of work of the minute.
        rows: Readings of the minute.
        bursts: Readings of each burst, from its begin.
    """

    pieces_s: tuple[float, ...]
    rows: Rows
    bursts: tuple[Rows, ...]


def power_limit(lab: Lab) -> Outcome:
    """Work for a minute and some bursts, and judge."""
    return judge(measure(lab))


def measure(lab: Lab) -> Minute:
    """Work without a pause for a minute, then in bursts."""
    watch = lab.watch(_READ)
    stamps = [lab.stamp()]
    held: deque[Event] = deque()
    begin_s = lab.now_s()
    while lab.now_s() - begin_s < _MINUTE_S:
        lab.work(Load.MATRIX, _PIECE_S)
        stamps.append(lab.stamp())
        held.append(lab.event())
        held[-1].record()
        if len(held) > 2:
            lab.wait(held.popleft(), Host.WAITS)
    lab.synchronize()
    rows = watch.stop()
    at_s = lab.device_s(stamps)
    bursts = []
    for _ in range(_BURSTS):
        lab.sleep(_IDLE_S)
        watch = lab.watch(_READ)
        lab.work(Load.MATRIX, _BURST_S)
        lab.synchronize()
        bursts.append(watch.stop())
    return Minute(tuple(np.diff(at_s).tolist()), rows, tuple(bursts))


def judge(found: Minute) -> Outcome:
    """Let the detectors of stragglers and drift see every piece as an iteration; they must stay calm."""
    baseline_s = statistics.median(found.pieces_s[_SETTLES : _SETTLES + _BASELINE])
    tracker, drift = StragglerTracker(StragglerConfig(), 1, 1), DriftWatch(StragglerConfig())
    straggles, drifts = 0, 0
    for piece_s in found.pieces_s[_SETTLES + _BASELINE :]:
        slowdown = np.array([[piece_s / baseline_s]])
        straggles += tracker.update(slowdown)
        drifts += drift.update(slowdown) is not None
    late = found.rows[len(found.rows) // 2 :]
    sustained_mhz = statistics.median(values[1] for _, values in late)
    reasons = reduce(int.__or__, (int(values[2]) for _, values in late), 0)
    figures = {
        "sustained_mhz": sustained_mhz,
        "highest_mhz": max(values[1] for _, values in found.rows),
        "sustained_w": power_w(found.rows, late[0][0], late[-1][0]),
        "reasons": f"{reasons:#x}",
        "governor_ms": _governor_s(found.bursts, sustained_mhz) * 1e3,
        "clock_renewed_ms": _renewed_s(found.rows) * 1e3,
        "first_pieces_faster_by": 1.0 - min(found.pieces_s) / baseline_s,
        "slowest_piece": max(found.pieces_s[_SETTLES:]) / baseline_s,
    }
    return judged(
        NAME,
        figures,
        Limit(straggles == 0, f"a straggler was declared {straggles} times"),
        Limit(drifts == 0, f"a drift was declared {drifts} times"),
    )


def _renewed_s(rows: Rows) -> float:
    """Return the time between two changes of the clock shown, of which one in ten is shorter."""
    changed_s = [at_s for (_, before), (at_s, values) in itertools.pairwise(rows) if values[1] != before[1]]
    return percentile([later_s - at_s for at_s, later_s in itertools.pairwise(changed_s)], 10)


def _governor_s(bursts: Sequence[Rows], sustained_mhz: float) -> float:
    """Return how long after the begin of a burst the clock is near the sustained one; 0: at once."""
    lasts_s = []
    for rows in bursts:
        above = [at_s for at_s, values in rows if values[1] > sustained_mhz * (1.0 + _NEAR)]
        lasts_s.append(above[-1] - rows[0][0] if above else 0.0)
    return statistics.median(lasts_s)
