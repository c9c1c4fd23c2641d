"""Experiment: what of the past do the energy counter and the power readings tell? Answered by steps of load.

Two answers are compared. The attribution's own finds the window from all steps at once. A step response needs no
model: it says how long after a long step the readings have come half the way.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey
from perseus_ds.silicon.lab import Lab, Load, between
from perseus_ds.silicon.outcome import Limit, Outcome, judged
from perseus_ds.silicon.powers import changed

__all__ = ["Steps", "counter", "judge", "measure"]

NAME = "counter"
_READ = ("energy_j", "average_power_w", "instant_power_w", "sm_clock_mhz")
_SHORT_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_ROUNDS = 3
_LONG_S, _LONG_STEPS = 2.0, 4
_PIECE_S = 0.01
_FEWEST = 20
_WORKS = CurveKey(0, Kind.FORWARD)


@dataclass(frozen=True)
class Steps:
    """Steps of load, and what was read meanwhile.

    Attributes:
        loads_s: Begin and end of each step, on the host's clock.
        rows: Time and values of ``_READ`` of each reading.
    """

    loads_s: tuple[tuple[float, float], ...]
    rows: tuple[tuple[float, tuple[float, ...]], ...]


def counter(lab: Lab) -> Outcome:
    """Take the steps and judge."""
    return judge(measure(lab))


def measure(lab: Lab) -> Steps:
    """Run steps of 10 ms to 2 s, with pauses about as long, and read as often as is sensible."""
    watch = lab.watch(_READ)
    first = [lab.handshake() for _ in range(20)]
    lab.sleep(1.0)
    lengths_s = [*(_SHORT_S * _ROUNDS), *([_LONG_S] * _LONG_STEPS)]
    # Nothing may repeat with the counter's period.
    chance = np.random.default_rng(1)
    order = chance.permutation(len(_SHORT_S) * _ROUNDS).tolist()
    stamps = []
    for index in [*order, *range(len(order), len(lengths_s))]:
        if lengths_s[index] == _LONG_S:
            lab.sleep(_LONG_S)
        stamps.append(lab.stamp())
        lab.work(Load.GENTLE, lengths_s[index])
        stamps.append(lab.stamp())
        lab.synchronize()
        lab.sleep(float(chance.uniform(0.5, 1.5)) * lengths_s[index])
    lab.sleep(1.0)
    on_host = between([*first, *(lab.handshake() for _ in range(20))])
    times_s = [on_host(at_s) for at_s in lab.device_s(stamps)]
    return Steps(tuple(zip(times_s[::2], times_s[1::2], strict=True)), tuple(watch.stop()))


def judge(steps: Steps) -> Outcome:
    """Compare the two answers; the attribution may also refuse to believe its own."""
    moves = changed(steps.rows)
    if len(moves) < _FEWEST:
        return judged(NAME, {}, Limit(False, f"the energy counter moved {len(moves)} times"))
    stepped_s = _half_way_s(steps, moves)
    figures: dict[str, float | str] = {
        "counter_step_lag_ms": stepped_s * 1e3,
        "average_power_step_lag_ms": _half_way_power_s(steps, 1) * 1e3,
        "instant_power_step_lag_ms": _half_way_power_s(steps, 2) * 1e3,
        "lowest_clock_in_steps_mhz": min(values[3] for at_s, values in steps.rows if _inside(at_s, steps.loads_s)),
    }
    try:
        found = _attributed(steps, moves)
    except PerseusError as error:
        return judged(NAME, figures, Limit(False, str(error)))
    window, period_s = found.window, found.period_s
    # An increment that tells of all its period is on average half a period old, and lags behind by nothing.
    told_s = period_s * (window.offset + window.width / 2 + window.average / 2 + window.decay - 0.5)
    figures |= {
        "period_ms": period_s * 1e3,
        "sampled_share": window.width,
        "sampled_offset": window.offset,
        "average_ms": window.average * period_s * 1e3,
        "decay_ms": window.decay * period_s * 1e3,
        "lag_told_ms": told_s * 1e3,
        "believed": "yes" if found.verdict.explained else "no",
    }
    agrees = abs(told_s - stepped_s) < period_s / 2
    why = f"attribution tells a lag of {told_s * 1e3:.0f} ms and believes it, steps show {stepped_s * 1e3:.0f} ms"
    return judged(NAME, figures, Limit(agrees or not found.verdict.explained, why))


def _attributed(steps: Steps, moves: Sequence[tuple[float, float]]) -> Attribution:
    """Attribute the energy to the steps."""
    spans = []
    for begin_s, end_s in steps.loads_s:
        # Equal pieces: instructions of one kind are equally long.
        borders_s = np.linspace(begin_s, end_s, max(1, round((end_s - begin_s) / _PIECE_S)) + 1).tolist()
        spans += [Span(first_s, last_s, _WORKS, 1) for first_s, last_s in itertools.pairwise(borders_s)]
    return attribute(spans, list(moves))


def _inside(at_s: float, loads_s: Sequence[tuple[float, float]]) -> bool:
    return any(begin_s <= at_s <= end_s for begin_s, end_s in loads_s)


def _long(steps: Steps) -> list[tuple[float, float]]:
    return [(begin_s, end_s) for begin_s, end_s in steps.loads_s if end_s - begin_s > 0.7 * _LONG_S]


def _half_way_s(steps: Steps, moves: Sequence[tuple[float, float]]) -> float:
    """Return how much later the counter shows a long step's energy than the step takes place.

    Before and after, the counter rises evenly. Where the two straight lines meet is the moment of the step that the
    counter tells.
    """
    at_s, energy_j = np.array(moves).T
    lags_s = []
    for begin_s, end_s in _long(steps):
        before = (at_s > begin_s - 0.4 * _LONG_S) & (at_s <= begin_s)
        within = (at_s > begin_s + 0.65 * _LONG_S) & (at_s <= end_s)
        if before.sum() > 2 and within.sum() > 2:
            (idle_w, idle_j), (load_w, load_j) = (
                np.polyfit(at_s[w] - begin_s, energy_j[w], 1) for w in (before, within)
            )
            lags_s.append((idle_j - load_j) / (load_w - idle_w))
    return float(statistics.median(lags_s)) if lags_s else float("nan")


def _half_way_power_s(steps: Steps, column: int) -> float:
    """Return how long after the begin of a long step a power reading has come half the way."""
    lags_s = []
    for begin_s, end_s in _long(steps):
        before = [values[column] for at_s, values in steps.rows if begin_s - 0.3 * _LONG_S < at_s <= begin_s]
        late = [values[column] for at_s, values in steps.rows if begin_s + 0.7 * _LONG_S < at_s <= end_s]
        half_w = (statistics.median(before) + statistics.median(late)) / 2.0
        passed = (at_s - begin_s for at_s, values in steps.rows if begin_s < at_s <= end_s and values[column] > half_w)
        lags_s.append(next(passed, float("nan")))
    return statistics.median(lags_s) if lags_s else float("nan")
