"""Time and energy of every instruction kind at every clock, and blocking power, from live training.

The energy counter is too slow to measure a single instruction. The attribution therefore combines many iterations:
the recorder's times of the work, and the clock keeper's readings of the counter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, inf, sqrt
from statistics import fmean

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.profiling.achieved import (
    DELAYED,
    Limited,
    Reading,
    at_achieved_clocks,
    at_the_limit,
    held_alone,
    is_limited,
    limited,
    sustained_clocks,
)
from perseus_ds.profiling.arrivals import arrivals
from perseus_ds.profiling.counter import CounterReader, Doubt, TooLittleSeen, counter_reader
from perseus_ds.profiling.instants import as_counter, sharpened
from perseus_ds.profiling.judge import BELIEVED, Verdict
from perseus_ds.profiling.latencies import Bounds
from perseus_ds.profiling.powers import fit_powers
from perseus_ds.profiling.regression import CONFIDENCE, CurveFit, Evidence
from perseus_ds.profiling.request_cost import request_stall_s, toggling
from perseus_ds.profiling.sizes import microbatch_sizes, sized
from perseus_ds.profiling.spans import Between, Change, Segment, Span, changes, segments, settled_durations
from perseus_ds.profiling.stalls import slowed, without_stalls
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.profiling.times import instruction_times
from perseus_ds.profiling.visits import Settled, by_curve, undisturbed_s
from perseus_ds.profiling.window import SampledWindow

__all__ = ["Attribution", "attribute"]


@dataclass(frozen=True)
class Attribution:
    """The profile of one GPU.

    Attributes:
        curves: Points of each curve by frequency descending, with 95 % confidence intervals.
        instances: Number of instructions behind each point's time.
        period_s: Update period of the energy counter.
        window: The part of the period in which the GPU looks at its power.
        states: What the powers belong to: curve and MHz; after these come waiting, its slope and other work.
        power: The powers that the energies follow from.
        evidence: What the powers were fitted to.
        waiting_mhz: The mean clock while waiting.
        verdict: What the residuals say of the fit.
        request_stall_s: For how long the GPU stands still for each clock request; None: too few requests tell.
        sustained_mhz: The highest clock that can be held, of the curves that cannot hold the highest. Their first point
            is what the power limit makes of it.
        latencies_s: Latencies by clock in MHz, as instructions' times tell them.
    """

    curves: Mapping[CurveKey, tuple[ProfilePoint, ...]]
    instances: Mapping[tuple[CurveKey, int], int]
    period_s: float
    window: SampledWindow
    states: tuple[tuple[CurveKey, int], ...]
    power: CurveFit
    evidence: Evidence
    waiting_mhz: float = 0.0
    verdict: Verdict = BELIEVED
    request_stall_s: float | None = None
    sustained_mhz: Mapping[CurveKey, int] = field(default_factory=dict)
    latencies_s: Mapping[int, Sequence[Bounds]] = field(default_factory=dict)

    @property
    def blocking_power_w(self) -> float:
        """Power while waiting, at the mean clock while waiting."""
        return float(self.power.values[len(self.states)])

    @property
    def blocking_power_ci_w(self) -> float:
        """Half width of the 95 % confidence interval of the power while waiting."""
        return CONFIDENCE * float(self.power.sd[len(self.states)])

    @property
    def waiting_slope_w_per_mhz(self) -> float:
        """How much more power waiting takes for each MHz."""
        clocks_mhz = [mhz for _, mhz in self.states]
        return float(self.power.values[len(self.states) + 1]) / max(max(clocks_mhz) - min(clocks_mhz), 1)

    @property
    def other_power_w(self) -> tuple[float, float]:
        """Power of other work at that clock, which it follows as waiting does, and its standard deviation."""
        other = len(self.states) + 2
        return float(self.power.values[other]), float(self.power.sd[other])

    @property
    def lag_s(self) -> float:
        """How long the counter takes to show a change of the power in full."""
        return self.window.reach * self.period_s

    @property
    def doubt(self) -> float:
        """Half width of an energy's 95 % interval, as a share of it: mean over all instructions and clocks."""
        return fmean(point.energy_ci_j / point.energy_j for points in self.curves.values() for point in points)

    def power_w(self, one: Segment) -> float:
        """Return the fitted power of a segment; a clock of which none was fitted has that of the nearest one."""
        higher_w = self.waiting_slope_w_per_mhz * (one.clock_mhz - self.waiting_mhz)
        waiting_w = self.blocking_power_w + higher_w
        if isinstance(one.what, Between):
            return waiting_w if one.what is Between.WAITING else self.other_power_w[0] + higher_w
        fitted = [(abs(mhz - one.clock_mhz), index) for index, (key, mhz) in enumerate(self.states) if key == one.what]
        power_w = float(self.power.values[min(fitted)[1]]) if fitted else fmean(self.power.values[: len(self.states)])
        return waiting_w + (power_w - waiting_w) / one.slowed

    def did(self, spans: Sequence[Span], switch_latency_s: float, readings: Sequence[Reading] = ()) -> list[Segment]:
        """Return what the GPU did, without waits for a late host, each clock from when it came.

        Args:
            spans: Work in order of time.
            switch_latency_s: From a clock request to the new clock, where no instruction's time tells it.
            readings: Of the SM clock, in order of time: where the driver holds it down, no host need be late.
        """
        limit_s = {key: DELAYED * self.curves[key][0].time_s for key in self.sustained_mhz}
        held = _held(self.curves, self.sustained_mhz)
        spans = slowed(spans, held)
        later = without_stalls(spans, held, limit_s)
        ran = [old if is_limited(readings, old.end_s) else new for old, new in zip(spans, later, strict=True)]
        asked = changes(spans, switch_latency_s)
        came = arrivals(ran, asked, self.curves, self.request_stall_s, self.sustained_mhz)
        return segments(ran, came.changes)

    def with_power(self, power: CurveFit) -> Attribution:
        """Return a copy with other powers and their energies."""
        column = {state: index for index, state in enumerate(self.states)}

        def point(key: CurveKey, old: ProfilePoint) -> ProfilePoint:
            state = column[key, old.frequency_mhz]
            power_w, power_ci_w = float(power.values[state]), CONFIDENCE * float(power.sd[state])
            energy_ci_j = hypot(power_ci_w * old.time_s, power_w * old.time_ci_s)
            return old._replace(energy_j=power_w * old.time_s, energy_ci_j=energy_ci_j)

        curves = {key: tuple(point(key, old) for old in points) for key, points in self.curves.items()}
        return replace(self, curves=curves, power=power)


def attribute(
    spans: Sequence[Span],
    samples: Sequence[tuple[float, float]],
    switch_latency_s: float = 0.0,
    window: SampledWindow | None = None,
    readings: Sequence[Reading] = (),
    shown_w: Sequence[tuple[float, float]] = (),
    guess: SampledWindow | None = None,
    usual_period_s: float = 0.0,
) -> Attribution:
    """Attribute a GPU's energy to its instructions and its waiting.

    Args:
        spans: Work of many iterations, in order of time; the GPU waits between them.
        samples: (monotonic time, joules) of each changed point of the energy counter.
        switch_latency_s: From a clock request to the new clock. An instruction with a clock change gives no time.
        window: The counter's sampled window if known; default: fitted to the data.
        readings: Of the SM clock, in order of time. Whatever ran lower than asked tells no time. Clocks that cannot be
            held are left out, but for the highest.
        shown_w: (monotonic time, watts) of each renewal of the power that the driver shows, in order of time. They
            count where the energy counter averages or leaves much in doubt.
        guess: The window that was found earlier, which saves time.
        usual_period_s: About the time between two updates of the counter, for rare readings; 0: not known.

    Returns:
        The attribution, without points that have no undisturbed instance.

    Raises:
        PerseusError: The counter hardly moved during the spans.
    """
    changed = changes(spans, switch_latency_s)
    asked = segments(spans, changed)
    achieved = at_achieved_clocks(asked, readings)
    sizes = microbatch_sizes(achieved)
    points, instances = instruction_times(settled_durations(held_alone(asked, achieved), sizes))
    sustained = sustained_clocks(asked, achieved)
    spans = slowed(sized(spans, sizes), _held(points, sustained))
    at_highest = by_curve(settled_durations(at_the_limit(asked, sustained), sizes))
    tops = {key: _mean_time(some) for key, some in at_highest.items()}
    stall_s = request_stall_s(spans, changed, points)
    ran, limit, latencies_s = _ran(spans, changed, stall_s, readings, points, sustained, tops)
    try:
        if not points:
            raise TooLittleSeen
        counter = _counter(samples, limit.did, spans, ran, usual_period_s)
        states, powers = fit_powers(limit, counter, window, guess)
        powers = sharpened(powers, limit, _counter(as_counter(shown_w), limit.did, spans, ran, 0.0))
    except (TooLittleSeen, np.linalg.LinAlgError) as error:
        raise PerseusError("profiling-no-energy", updates=len(samples), instructions=sum(instances.values())) from error
    tops = {key: top for key, top in tops.items() if (key, top.frequency_mhz) in states}
    curves = _curves(points, sustained, tops, states)
    instances |= {(key, top.frequency_mhz): len(at_highest[key]) for key, top in tops.items()}
    fitted = powers.period_s, powers.window, states, powers.fit, powers.evidence, powers.waiting_mhz, powers.verdict
    held = {key: sustained[key] for key in tops}
    return Attribution(curves, instances, *fitted, stall_s, held, latencies_s).with_power(powers.fit)


def _ran(
    spans: Sequence[Span],
    changed: Sequence[Change],
    stall_s: float | None,
    readings: Sequence[Reading],
    points: Mapping[CurveKey, Sequence[ProfilePoint]],
    sustained: Mapping[CurveKey, int],
    tops: Mapping[CurveKey, ProfilePoint],
) -> tuple[list[Span], Limited, dict[int, list[Bounds]]]:
    """Return the work without waits for a late host, what the GPU did, and the latencies of clocks that this tells."""
    # Above a clock that can be held the power limit decides how long an instruction takes: that hardly tells a stall.
    held = _held(points, sustained)
    ran = without_stalls(spans, held, {key: DELAYED * top.time_s for key, top in tops.items()})
    # But it tells well when a much lower clock came or went.
    told = {key: [*row, *_above(key, tops, spans, sustained)] for key, row in held.items()}
    came = arrivals(ran, changed, told, stall_s, sustained)
    top_s = {key: top.time_s for key, top in tops.items()}
    return ran, limited(segments(ran, came.changes), readings, sustained, top_s, spans, held), came.latencies_s


def _held(
    points: Mapping[CurveKey, Sequence[ProfilePoint]], sustained: Mapping[CurveKey, int]
) -> dict[CurveKey, list[ProfilePoint]]:
    """Return each curve's points at clocks that can be held."""
    return {key: [p for p in row if p.frequency_mhz <= sustained.get(key, inf)] for key, row in points.items()}


def _above(
    key: CurveKey, tops: Mapping[CurveKey, ProfilePoint], spans: Sequence[Span], sustained: Mapping[CurveKey, int]
) -> list[ProfilePoint]:
    """Return a curve's time at every clock that was asked for and cannot be held: the same at all of them."""
    if key not in tops:
        return []
    asked = {span.frequency_mhz for span in spans if span.key == key}
    return [tops[key]._replace(frequency_mhz=mhz) for mhz in sorted(asked) if mhz > sustained[key]]


def _counter(
    samples: Sequence[tuple[float, float]],
    did: Sequence[Segment],
    spans: Sequence[Span],
    ran: Sequence[Span],
    usual_period_s: float,
) -> CounterReader:
    """Return the counter without what does not count, and with doubts where a request let the GPU stand still."""
    excluded = sorted([*((span.begin_s, span.end_s) for span in spans if span.excluded), *toggling(spans)])
    doubts = [
        Doubt(old.begin_s, old.end_s, new.begin_s - old.begin_s)
        for old, new in zip(spans, ran, strict=True)
        if old.begin_s != new.begin_s
    ]
    return counter_reader(samples, did[0].begin_s, did[-1].end_s, excluded, doubts, usual_period_s)


def _curves(
    points: Mapping[CurveKey, Sequence[ProfilePoint]],
    sustained: Mapping[CurveKey, int],
    tops: Mapping[CurveKey, ProfilePoint],
    states: Collection[tuple[CurveKey, int]],
) -> dict[CurveKey, tuple[ProfilePoint, ...]]:
    """Return the points of clocks that can be held and have a power; above them what the power limit makes of more.

    A clock that is faster than that was held by a cooler GPU.
    """
    found: dict[CurveKey, tuple[ProfilePoint, ...]] = {}
    for key in sorted({*points, *tops}):
        top = tops.get(key)
        # Without its stalls an instruction may have run at another clock than it first seemed: that clock has no power.
        known = [p for p in points.get(key, ()) if (key, p.frequency_mhz) in states]
        if top is not None:
            found[key] = (top, *(p for p in known if p.frequency_mhz <= sustained[key] and p.time_s > top.time_s))
        elif held := tuple(p for p in known if p.frequency_mhz <= sustained.get(key, inf)):
            found[key] = held
    return found


def _mean_time(at_highest: Sequence[Settled]) -> ProfilePoint:
    """Return the mean time at the power limit: what a GPU did before decides how long it holds which clock."""
    usual_s = undisturbed_s([one.seconds for one in at_highest])
    durations_s = np.array([one.seconds for one in at_highest if one.seconds <= DELAYED * usual_s])
    half_width_s = CONFIDENCE * float(durations_s.std()) / sqrt(len(durations_s))
    return ProfilePoint(at_highest[0].mhz, float(durations_s.mean()), 0.0, half_width_s)
