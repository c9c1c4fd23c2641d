"""Experiment: does the attribution find each load's power in a mix, as it is measured alone?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.instants import as_counter
from perseus_ds.profiling.regression import CONFIDENCE
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey
from perseus_ds.silicon.lab import Lab, Load, between
from perseus_ds.silicon.outcome import Limit, Outcome, judged
from perseus_ds.silicon.powers import Rows, changed, counted_between, power_w

__all__ = ["Mix", "alone_w", "attribution", "judge", "mix"]

NAME = "attribution"
_PIECES_S = {Load.GENTLE: 0.06, Load.MEMORY: 0.04}
_KEYS = {Load.GENTLE: CurveKey(0, Kind.FORWARD), Load.MEMORY: CurveKey(0, Kind.BACKWARD)}
_PIECES, _LONGEST_WAIT_S = 300, 0.12
_ROUNDS, _PIECES_ALONE, _PAUSE_S, _SETTLES_S = 4, 14, 1.2, 0.25
_HANDSHAKES = 20
_WITHIN = 0.02


@dataclass(frozen=True)
class Mix:
    """A mix of loads and waits.

    Attributes:
        spans: The loads.
        rows: The energy counter and the power shown meanwhile.
    """

    spans: tuple[Span, ...]
    rows: Rows


def attribution(lab: Lab) -> Outcome:
    """Measure each load alone before and after a mix, as the GPU warms up, and judge."""
    before = alone_w(lab)
    mixed = mix(lab)
    return judge([before, alone_w(lab)], mixed)


def alone_w(lab: Lab) -> dict[Load | None, float]:
    """Return each load's power alone; None: waiting. All take turns: alone for seconds, a load warms the GPU up.

    A load comes in pieces with waits between, as in the mix. An H200 draws 3 % more in the second second of fp32 work
    than in 60 ms of it.
    """
    chance = np.random.default_rng(3)
    watch = lab.watch(("energy_j",))
    lab.sleep(_SETTLES_S)
    ran: list[tuple[Load, float, float, float]] = []  # begin, end, and how much of it was work
    pauses: list[tuple[float, float]] = []
    for load in [*_PIECES_S] * _ROUNDS:
        begin_s, stamps = lab.now_s(), []
        for _ in range(_PIECES_ALONE):
            lab.sleep(float(chance.uniform(0.0, _LONGEST_WAIT_S)))
            stamps += _piece(lab, load)
        end_s = lab.now_s()
        lab.sleep(_PAUSE_S)
        device_s = lab.device_s(stamps)
        ran.append((load, begin_s, end_s, sum(device_s[1::2]) - sum(device_s[::2])))
        pauses.append((end_s + _SETTLES_S, lab.now_s()))
    rows = watch.stop()
    waiting_w = statistics.mean(power_w(rows, begin_s, end_s) for begin_s, end_s in pauses)
    found: dict[Load | None, float] = {None: waiting_w}
    for load in _PIECES_S:
        runs = [one for one in ran if one[0] is load]
        # From a wait to a wait: how late the counter is does not matter.
        counted_j = sum(counted_between(rows, begin_s, end_s + _SETTLES_S) for _, begin_s, end_s, _ in runs)
        waited_s = sum(end_s + _SETTLES_S - begin_s - works_s for _, begin_s, end_s, works_s in runs)
        found[load] = (counted_j - waiting_w * waited_s) / sum(works_s for *_, works_s in runs)
    return found


def _piece(lab: Lab, load: Load) -> tuple[int, int]:
    """Run a piece of a load and return the stamps of its begin and end."""
    begin = lab.stamp()
    lab.work(load, _PIECES_S[load])
    end = lab.stamp()
    lab.synchronize()
    return begin, end


def mix(lab: Lab) -> Mix:
    """Run loads and waits in an order by chance."""
    chance = np.random.default_rng(2)
    handshakes = [lab.handshake() for _ in range(_HANDSHAKES)]
    watch = lab.watch(("energy_j", "instant_power_w"))
    stamps: list[int] = []
    loads: list[Load] = []
    for _ in range(_PIECES):
        loads.append(list(_PIECES_S)[chance.integers(2)])
        stamps += _piece(lab, loads[-1])
        lab.sleep(float(chance.uniform(0.0, _LONGEST_WAIT_S)))
    lab.sleep(1.0)
    rows = watch.stop()
    on_host = between([*handshakes, *(lab.handshake() for _ in range(_HANDSHAKES))])
    at_s = [on_host(device_s) for device_s in lab.device_s(stamps)]
    spans = (Span(at_s[2 * k], at_s[2 * k + 1], _KEYS[load], 1) for k, load in enumerate(loads))
    return Mix(tuple(spans), rows)


def judge(alone: Sequence[Mapping[Load | None, float]], mixed: Mix) -> Outcome:
    """Judge the powers that the attribution finds.

    Args:
        alone: Each load's power alone in W, before and after.
        mixed: The mix.
    """
    try:
        found = attribute(list(mixed.spans), changed(mixed.rows))
    except PerseusError as error:
        return judged(NAME, {}, Limit(False, str(error)))
    figures: dict[str, float | str] = {"believed": "yes" if found.verdict.explained else "no"}
    limits = [Limit(found.verdict.explained, "the attribution does not believe its own result")]
    for load, (value_w, doubt_w) in _found_w(found).items():
        name = _name(load)
        powers_w = [one[load] for one in alone]
        expected_w = statistics.mean(powers_w)
        figures |= {f"{name}_alone_w": expected_w, f"{name}_in_mix_w": value_w, f"{name}_interval_w": doubt_w}
        off = value_w / expected_w - 1.0
        limits.append(Limit(abs(off) < _WITHIN, f"{name}: {off:+.1%} off, limit 2 %"))
        # Alone, it is only known to lie between before and after.
        covers = min(powers_w) - doubt_w <= value_w <= max(powers_w) + doubt_w
        limits.append(Limit(covers, f"{name}: {value_w:.1f} ± {doubt_w:.1f} W, {expected_w:.1f} W alone"))
    return judged(NAME, figures | _shown(mixed), *limits)


def _name(load: Load | None) -> str:
    return "waiting" if load is None else load.value


def _found_w(found: Attribution) -> dict[Load | None, tuple[float, float]]:
    """Return each load's power and the half width of its interval; None: waiting."""
    places = {None: len(found.states), **{load: found.states.index((key, 1)) for load, key in _KEYS.items()}}
    return {
        load: (float(found.power.values[place]), CONFIDENCE * float(found.power.sd[place]))
        for load, place in places.items()
    }


def _shown(mixed: Mix) -> dict[str, float | str]:
    """Return what the powers that the driver shows tell, by themselves: a counter that averages needs them."""
    try:
        found = attribute(list(mixed.spans), as_counter(changed(mixed.rows, 1)))
    except PerseusError:
        return {"shown_believed": "no"}
    figures: dict[str, float | str] = {"shown_believed": "yes" if found.verdict.explained else "no"}
    window_s = found.window.width * found.period_s
    figures |= {"shown_period_ms": found.period_s * 1e3, "shown_window_ms": window_s * 1e3}
    for load, (value_w, doubt_w) in _found_w(found).items():
        name = _name(load)
        figures |= {f"{name}_shown_w": value_w, f"{name}_shown_interval_w": doubt_w}
    return figures
