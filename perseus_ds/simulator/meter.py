"""The energy counter of a virtual GPU.

It follows measurements of real ones (arXiv 2312.02741). Once per period it publishes the samples of the period's
first part, extrapolated to the whole period. A sample may be an exponential average of the power over a window. The
integral of that average is the energy minus the window times the average.
"""

from __future__ import annotations

import math

from perseus_ds.simulator.chance import normal, uniform
from perseus_ds.simulator.nature import GpuSpec
from perseus_ds.simulator.state import GpuDynamic

__all__ = ["integrate", "publish", "start_meter"]


def start_meter(gpu: GpuDynamic, spec: GpuSpec) -> None:
    """Begin the counter's periods, at a phase of its own for each seed, on a GPU that has waited so far."""
    gpu.counter_average_w = spec.waiting_power_w(gpu.clock)
    gpu.meter_begin_s = gpu.time_s - spec.counter_period_s * uniform(spec.seed, -1)
    gpu.meter_begin_j = gpu.meter_sample_j = _seen_j(gpu, spec)
    gpu.meter_sampling = 0
    gpu.meter_s = gpu.meter_begin_s + spec.counter_period_s


def integrate(gpu: GpuDynamic, spec: GpuSpec, power_w: float, seconds: float) -> None:
    """Advance by a time of constant power."""
    gpu.energy_j += power_w * seconds
    if spec.counter_window_s:
        kept = math.exp(-seconds / spec.counter_window_s)
        gpu.counter_average_w = power_w + (gpu.counter_average_w - power_w) * kept


def publish(gpu: GpuDynamic, spec: GpuSpec) -> None:
    """End the counter's sampling window or its period."""
    if gpu.meter_sampling:
        gpu.meter_sample_j = _seen_j(gpu, spec)
        gpu.meter_sampling = 0
        gpu.meter_s = gpu.meter_begin_s + spec.counter_period_s
        if spec.sampling_duty < 1.0:
            return
    measured_j = (gpu.meter_sample_j - gpu.meter_begin_j) / spec.sampling_duty
    gpu.counter_j += max(0.0, measured_j * (1.0 + spec.noise * normal(spec.seed, gpu.meter_periods)))
    gpu.meter_periods += 1
    gpu.meter_begin_s += spec.counter_period_s
    gpu.meter_begin_j = _seen_j(gpu, spec)
    gpu.meter_sampling = 1
    gpu.meter_s = gpu.meter_begin_s + spec.counter_period_s * spec.sampling_duty


def _seen_j(gpu: GpuDynamic, spec: GpuSpec) -> float:
    """Return the integral of the average that the counter samples."""
    return gpu.energy_j - spec.counter_window_s * gpu.counter_average_w
