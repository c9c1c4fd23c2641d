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
from perseus_ds.silicon.powers import Rows, changed, power_w

__all__ = ["Mix", "alone_w", "attribution", "judge", "mix"]

NAME = "attribution"
_PIECES_S = {Load.GENTLE: 0.06, Load.MEMORY: 0.04}
_KEYS = {Load.GENTLE: CurveKey(0, Kind.FORWARD), Load.MEMORY: CurveKey(0, Kind.BACKWARD)}
_PIECES, _LONGEST_WAIT_S = 300, 0.12
_ROUNDS, _ALONE_S, _PAUSE_S, _SETTLES_S = 4, 1.2, 1.2, 0.25
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
    """Return each load's power alone; None: waiting. All take turns: alone for seconds, a load warms the GPU up."""
    watch = lab.watch(("energy_j",))
    ran: list[tuple[Load | None, float, float]] = []
    for load in [*_PIECES_S] * _ROUNDS:
        begin_s = lab.now_s()
        lab.work(load, _ALONE_S)
        lab.synchronize()
        end_s = lab.now_s()
        lab.sleep(_PAUSE_S)
        ran += [(load, begin_s, end_s), (None, end_s, lab.now_s())]
    rows = watch.stop()
    return {
        load: statistics.mean(power_w(rows, begin_s + _SETTLES_S, end_s) for one, begin_s, end_s in ran if one is load)
        for load in (None, *_PIECES_S)
    }


def mix(lab: Lab) -> Mix:
    """Run loads and waits in an order by chance."""
    chance = np.random.default_rng(2)
    handshakes = [lab.handshake() for _ in range(_HANDSHAKES)]
    watch = lab.watch(("energy_j", "instant_power_w"))
    stamps, loads = [], []
    for _ in range(_PIECES):
        loads.append(list(_PIECES_S)[chance.integers(2)])
        stamps.append(lab.stamp())
        lab.work(loads[-1], _PIECES_S[loads[-1]])
        stamps.append(lab.stamp())
        lab.synchronize()
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
