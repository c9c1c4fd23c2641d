"""How a virtual GPU evolves: work, power, clock switches and the energy counter, from event to event.

Power is piecewise constant, so everything is integrated exactly. The counter follows what has been measured
on real ones (arXiv 2312.02741): it publishes once per period what it sampled in the first part of the
period, extrapolated to the whole period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.simulator.state import MAX_PENDING, GpuDynamic

__all__ = ["Curve", "Nature", "advance", "finish_time_s", "request_clock", "start_meter"]

Curve = Sequence[tuple[float, float]]
"""Time in s and energy in J of one instruction at every supported clock, by clock index."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Nature:
    """The constants that the evolution depends on; the fields of the same names in ``GpuConstants``."""

    blocking_power_w: float
    switch_latency_s: float
    switch_latency_spread: float
    counter_period_s: float
    sampling_duty: float
    noise: float
    seed: int


def _uniform(seed: int, index: int) -> float:
    """Return the ``index``-th number of a reproducible uniform sequence in (0, 1) (splitmix64)."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return ((z >> 11) + 0.5) / 9007199254740992.0


def _normal(seed: int, index: int) -> float:
    """Return the ``index``-th number of a reproducible standard normal sequence (Box-Muller)."""
    radius = math.sqrt(-2.0 * math.log(_uniform(seed, 2 * index)))
    return radius * math.cos(2.0 * math.pi * _uniform(seed, 2 * index + 1))


def start_meter(gpu: GpuDynamic, nature: Nature, now_s: float) -> None:
    """Begin the energy counter's periods at a phase of their own for each seed."""
    gpu.time_s = now_s
    gpu.meter_begin_s = now_s - nature.counter_period_s * _uniform(nature.seed, _MASK)
    gpu.meter_begin_j = gpu.energy_j
    gpu.meter_sample_j = gpu.energy_j
    gpu.meter_sampling = 0
    gpu.meter_s = gpu.meter_begin_s + nature.counter_period_s


def _draw(gpu: GpuDynamic, nature: Nature, curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the power in W and the work rate in 1/s at this moment."""
    if gpu.curve < 0 or gpu.remaining <= 0.0:
        return nature.blocking_power_w, 0.0
    time_s, energy_j = curves[gpu.curve][gpu.clock]
    slowed_s = time_s * gpu.slowdown
    return (energy_j + nature.blocking_power_w * (slowed_s - time_s)) / slowed_s, 1.0 / slowed_s


def advance(gpu: GpuDynamic, nature: Nature, curves: Sequence[Curve], now_s: float) -> None:
    """Bring the state to ``now_s``.

    Args:
        gpu: State, changed in place.
        nature: The GPU's constants.
        curves: Curves by the index in ``gpu.curve``.
        now_s: Monotonic time; earlier than the state's own time: nothing happens.
    """
    while gpu.time_s < now_s:
        power_w, rate = _draw(gpu, nature, curves)
        until_s = min(now_s, gpu.meter_s)
        if gpu.pending_count:
            until_s = min(until_s, max(gpu.pending[0].effective_s, gpu.time_s))
        work_end_s = gpu.time_s + gpu.remaining / rate if rate else math.inf
        until_s = min(until_s, work_end_s)
        gpu.energy_j += power_w * (until_s - gpu.time_s)
        if rate:
            gpu.remaining = 0.0 if until_s >= work_end_s else gpu.remaining - rate * (until_s - gpu.time_s)
        gpu.time_s = until_s
        if gpu.pending_count and gpu.pending[0].effective_s <= until_s:
            _take_effect(gpu)
        if until_s >= gpu.meter_s:
            _metrics_writer(gpu, nature)


def _take_effect(gpu: GpuDynamic) -> None:
    """Apply the oldest pending clock."""
    gpu.clock = gpu.pending[0].clock
    for index in range(1, gpu.pending_count):
        gpu.pending[index - 1] = gpu.pending[index]
    gpu.pending_count -= 1


def _metrics_writer(gpu: GpuDynamic, nature: Nature) -> None:
    """End the counter's sampling window or its period."""
    if gpu.meter_sampling:
        gpu.meter_sample_j = gpu.energy_j
        gpu.meter_sampling = 0
        gpu.meter_s = gpu.meter_begin_s + nature.counter_period_s
        if nature.sampling_duty < 1.0:
            return
    measured_j = (gpu.meter_sample_j - gpu.meter_begin_j) / nature.sampling_duty
    gpu.counter_j += max(0.0, measured_j * (1.0 + nature.noise * _normal(nature.seed, gpu.meter_periods)))
    gpu.meter_periods += 1
    gpu.meter_begin_s += nature.counter_period_s
    gpu.meter_begin_j = gpu.energy_j
    gpu.meter_sampling = 1
    gpu.meter_s = gpu.meter_begin_s + nature.counter_period_s * nature.sampling_duty


def request_clock(gpu: GpuDynamic, nature: Nature, clock: int) -> None:
    """Ask for a clock at ``gpu.time_s``; it takes effect after the switch latency, requests in their order.

    Args:
        gpu: State, changed in place.
        nature: The GPU's constants.
        clock: Index of the clock.
    """
    gpu.requests += 1
    spread = nature.switch_latency_spread * (2.0 * _uniform(nature.seed ^ 0x5057, gpu.requests) - 1.0)
    effective_s = gpu.time_s + nature.switch_latency_s * (1.0 + spread)
    if gpu.pending_count:
        effective_s = max(effective_s, gpu.pending[gpu.pending_count - 1].effective_s)
    if gpu.pending_count == MAX_PENDING:
        _take_effect(gpu)
    if effective_s <= gpu.time_s:
        gpu.clock = clock
        return
    slot = gpu.pending[gpu.pending_count]
    slot.effective_s, slot.clock = effective_s, clock
    gpu.pending_count += 1


def finish_time_s(gpu: GpuDynamic, curves: Sequence[Curve]) -> float:
    """Return when the running instruction will be done if nobody asks for another clock.

    Args:
        gpu: State, unchanged.
        curves: Curves by the index in ``gpu.curve``.

    Returns:
        Monotonic time in s; ``gpu.time_s`` when nothing runs.
    """
    if gpu.curve < 0 or gpu.remaining <= 0.0:
        return gpu.time_s
    time_s, remaining, clock = gpu.time_s, gpu.remaining, gpu.clock
    for index in range(gpu.pending_count):
        switch = gpu.pending[index]
        needed_s = remaining * curves[gpu.curve][clock][0] * gpu.slowdown
        if time_s + needed_s <= switch.effective_s:
            return time_s + needed_s
        remaining *= 1.0 - max(0.0, switch.effective_s - time_s) / needed_s
        time_s, clock = max(time_s, switch.effective_s), switch.clock
    return time_s + remaining * curves[gpu.curve][clock][0] * gpu.slowdown
