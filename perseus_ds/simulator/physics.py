"""Evolution of a virtual GPU: work, power, clock switches and throttling, from event to event.

Power is piecewise constant, so the integration is exact, however often it is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perseus_ds.simulator.chance import exponential, normal, uniform
from perseus_ds.simulator.meter import integrate, publish, start_meter
from perseus_ds.simulator.nature import GpuSpec
from perseus_ds.simulator.state import MAX_PENDING, GpuDynamic

__all__ = [
    "Curve",
    "advance",
    "clock_without_limit",
    "draw",
    "effective_clock",
    "finish_time_s",
    "request_clock",
    "shown",
    "start",
    "stop_work",
    "warmth",
]

Curve = Sequence[tuple[float, float]]
"""Time in s and energy in J of one instruction at every supported clock, by clock index."""

_POWER_CAP, _THERMAL_SLOWDOWN = 0x4, 0x40
_LOOKS_PER_WINDOW = 4
_THERMAL_LOOK_S = 0.05


def start(gpu: GpuDynamic, spec: GpuSpec, now_s: float) -> None:
    """Set the first state of a new GPU: cold, idle, at its highest clock."""
    gpu.time_s = now_s
    gpu.curve = -1
    gpu.slowdown = gpu.factor = 1.0
    gpu.ceiling_mhz = float(spec.clocks_mhz[0])
    gpu.average_w = spec.waiting_power_w(0)
    gpu.tick_s = now_s + _look_s(spec)
    gpu.power_from_s = now_s + spec.readings_period_s * uniform(spec.seed, -2) if spec.readings_period_s else math.inf
    gpu.renewed_s = gpu.power_from_s + _power_window_s(spec)
    _renew(gpu, spec, gpu.average_w)
    start_meter(gpu, spec)


def effective_clock(gpu: GpuDynamic) -> int:
    """Return the index of the current clock: a lock is a request, limits are ceilings."""
    return max(clock_without_limit(gpu), gpu.ceiling)


def clock_without_limit(gpu: GpuDynamic) -> int:
    """Return the same as if power were not limited: the clock asked for, unless the GPU is hot."""
    return max(gpu.clock, gpu.thermal_ceiling)


def warmth(gpu: GpuDynamic, spec: GpuSpec) -> float:
    """Return the current power over that of a cold GPU doing the same."""
    return 1.0 + spec.leakage_per_k * gpu.warming_k


def draw(gpu: GpuDynamic, spec: GpuSpec, curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the current power in W and work rate in 1/s."""
    clock = effective_clock(gpu)
    warm = warmth(gpu, spec)
    waiting_w = spec.waiting_power_w(clock)
    if gpu.curve < 0 or gpu.remaining <= 0.0 or gpu.time_s < gpu.stalled_until_s:
        return waiting_w * warm, 0.0
    time_s, energy_j = curves[gpu.curve][clock]
    slowed_s = time_s * gpu.slowdown * gpu.factor
    return (energy_j + waiting_w * (slowed_s - time_s)) / slowed_s * warm, 1.0 / slowed_s


def advance(gpu: GpuDynamic, spec: GpuSpec, curves: Sequence[Curve], until_s: float, to_work_end: bool = False) -> None:
    """Advance the state to ``until_s``.

    Args:
        gpu: State, changed in place.
        spec: Description of the GPU.
        curves: Curves by the index in ``gpu.curve``.
        until_s: Monotonic time; no effect before the state's own time.
        to_work_end: Stop at the end of the running instruction, if that is earlier.
    """
    while gpu.time_s < until_s:
        power_w, rate = draw(gpu, spec, curves)
        if rate and (clock_without_limit(gpu) != gpu.begin_clock or gpu.slowdown != 1.0):
            gpu.begin_clock = -1
        if rate and gpu.ceiling > clock_without_limit(gpu):
            gpu.limited = 1
        next_s = min(until_s, gpu.meter_s, gpu.tick_s, gpu.renewed_s, gpu.power_from_s)
        if gpu.pending_count:
            next_s = min(next_s, max(gpu.pending[0].effective_s, gpu.time_s))
        if gpu.stalled_until_s > gpu.time_s:
            next_s = min(next_s, gpu.stalled_until_s)
        work_end_s = gpu.time_s + gpu.remaining / rate if rate else math.inf
        next_s = min(next_s, work_end_s)
        integrate(gpu, spec, power_w, next_s - gpu.time_s)
        if rate:
            gpu.remaining = 0.0 if next_s >= work_end_s else gpu.remaining - rate * (next_s - gpu.time_s)
        gpu.time_s = next_s
        if gpu.pending_count and gpu.pending[0].effective_s <= next_s:
            _take_effect(gpu)
        if next_s >= gpu.tick_s:
            _look(gpu, spec)
        if next_s >= gpu.meter_s:
            publish(gpu, spec)
        if next_s >= gpu.power_from_s:
            gpu.power_from_s, gpu.power_from_j = gpu.power_from_s + spec.readings_period_s, gpu.energy_j
        if next_s >= gpu.renewed_s:
            gpu.renewed_s += spec.readings_period_s
            _renew(gpu, spec, _sampled_w(gpu, spec) or power_w)
        if to_work_end and next_s >= work_end_s:
            return


def shown(gpu: GpuDynamic, spec: GpuSpec, curves: Sequence[Curve]) -> tuple[float, int, int]:
    """Return power in W, clock in MHz and throttle reasons as NVML shows them."""
    if not spec.readings_period_s:
        _renew(gpu, spec, draw(gpu, spec, curves)[0])
    return gpu.shown_w, gpu.shown_mhz, gpu.shown_reasons


def _power_window_s(spec: GpuSpec) -> float:
    return min(spec.power_window_s, spec.readings_period_s)


def _sampled_w(gpu: GpuDynamic, spec: GpuSpec) -> float:
    """Return the mean power since the window's begin, with noise; 0 without a window."""
    if not (window_s := _power_window_s(spec)):
        return 0.0
    gpu.renewals += 1
    return (gpu.energy_j - gpu.power_from_j) / window_s * (1.0 + spec.noise * normal(spec.seed, -2 - gpu.renewals))


def _renew(gpu: GpuDynamic, spec: GpuSpec, power_w: float) -> None:
    allowed_mhz = spec.clocks_mhz[effective_clock(gpu)] / gpu.slowdown
    gpu.shown_w = power_w
    gpu.shown_mhz = next((mhz for mhz in spec.clocks_mhz if mhz <= allowed_mhz), spec.clocks_mhz[-1])
    thermal = gpu.slowdown > 1.0 or gpu.thermal_ceiling > gpu.clock
    gpu.shown_reasons = _THERMAL_SLOWDOWN * thermal | _POWER_CAP * (gpu.ceiling > gpu.clock)


def stop_work(gpu: GpuDynamic) -> None:
    """Stop the running instruction."""
    gpu.curve = -1
    gpu.remaining = 0.0


def finish_time_s(gpu: GpuDynamic, spec: GpuSpec, curves: Sequence[Curve]) -> float:
    """Return the end time of the running instruction without further clock requests.

    Args:
        gpu: State, unchanged.
        spec: Description of the GPU.
        curves: Curves by the index in ``gpu.curve``.

    Returns:
        Monotonic time in s; ``gpu.time_s`` when idle.
    """
    if gpu.curve < 0 or gpu.remaining <= 0.0:
        return gpu.time_s
    future = GpuDynamic.from_buffer_copy(gpu)
    advance(future, spec, curves, math.inf, to_work_end=True)
    return future.time_s


def request_clock(gpu: GpuDynamic, spec: GpuSpec, clock: int) -> None:
    """Request a clock at ``gpu.time_s``; requests take effect in order, each after the switch latency.

    Args:
        gpu: State, changed in place.
        spec: Description of the GPU.
        clock: Index of the clock.
    """
    gpu.requests += 1
    gpu.stalled_until_s = max(gpu.stalled_until_s, gpu.time_s) + spec.request_stall_s
    effective_s = gpu.time_s + _latency_s(spec, clock, gpu.requests)
    if gpu.pending_count:
        effective_s = max(effective_s, gpu.pending[gpu.pending_count - 1].effective_s)
    if gpu.pending_count == MAX_PENDING:
        _take_effect(gpu)
    if effective_s <= gpu.time_s:
        _set_clock(gpu, clock)
        return
    slot = gpu.pending[gpu.pending_count]
    slot.effective_s, slot.clock = effective_s, clock
    gpu.pending_count += 1


def _latency_s(spec: GpuSpec, clock: int, request: int) -> float:
    """Draw the latency of one request: mostly by target clock, partly random."""
    by_clock = 1.0 + spec.switch_latency_by_clock * uniform(0x434C4B, spec.clocks_mhz[clock])
    spread = spec.switch_latency_spread * (2.0 * uniform(spec.seed ^ 0x5057, request) - 1.0)
    latency_s = spec.switch_latency_s * by_clock * (1.0 + spread)
    if uniform(spec.seed ^ 0x5441, request) < spec.switch_tail_share:
        latency_s += spec.switch_tail_s * exponential(spec.seed ^ 0x494C, request)
    return latency_s


def _take_effect(gpu: GpuDynamic) -> None:
    """Apply the oldest pending clock."""
    _set_clock(gpu, gpu.pending[0].clock)
    for index in range(1, gpu.pending_count):
        gpu.pending[index - 1] = gpu.pending[index]
    gpu.pending_count -= 1


def _set_clock(gpu: GpuDynamic, clock: int) -> None:
    if clock != gpu.clock:
        gpu.unchanged = 0
    gpu.clock = clock


def _look_s(spec: GpuSpec) -> float:
    """Return the interval of checks of power and temperature; infinite if neither matters."""
    if spec.power_limit_window_s:
        return spec.power_limit_window_s / _LOOKS_PER_WINDOW
    return _THERMAL_LOOK_S if spec.leakage_per_k else math.inf


def _look(gpu: GpuDynamic, spec: GpuSpec) -> None:
    """Process the power since the last check: warm up, and keep the average below the limit.

    The ceiling follows the average's distance from the limit at a quarter of the window's rate. Power grows about
    with the clock's square, so this settles fast and overshoots by a few per cent. It rises more slowly than it
    falls, on an H200 by 14 % in a wait of 40 ms.
    """
    look_s = _look_s(spec)
    mean_w = (gpu.energy_j - gpu.tick_j) / look_s
    gpu.tick_j = gpu.energy_j
    gpu.tick_s += look_s
    target_k = spec.thermal_resistance_k_per_w * mean_w
    gpu.warming_k += (target_k - gpu.warming_k) * -math.expm1(-look_s / spec.thermal_window_s)
    if not spec.power_limit_window_s:
        return
    gpu.average_w += (mean_w - gpu.average_w) * -math.expm1(-look_s / spec.power_limit_window_s)
    distance = (spec.power_limit_w - gpu.average_w) / spec.power_limit_w
    slowed = spec.power_limit_rise if distance > 0.0 else 1.0
    change = 1.0 + distance * look_s / (4.0 * slowed * spec.power_limit_window_s)
    lowest_mhz, highest_mhz = spec.clocks_mhz[-1], spec.clocks_mhz[0]
    gpu.ceiling_mhz = min(highest_mhz, max(lowest_mhz, gpu.ceiling_mhz * change))
    gpu.ceiling = next(index for index, mhz in enumerate(spec.clocks_mhz) if mhz <= gpu.ceiling_mhz + 1e-9)
