"""GPU models by name, with physics as published or measured. ``docs/worlds.md`` gives the source of each figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perseus_ds.config import SimulatorConfig
from perseus_ds.simulator.nature import CONSTANTS

__all__ = ["MODELS", "GpuModel", "gpu_model"]


@dataclass(frozen=True)
class GpuModel:
    """A GPU model: its physics, the cost of its other operations, and the host's lead.

    Attributes:
        physics: Constants of ``Nature`` that differ from an ideal GPU's.
        top_clock_mhz: New value of the profile's highest clock, with the others in proportion; None: unchanged
            clocks.
        power_scale: Multiplies the power of instructions.
        transfer_s: Time of a point-to-point transfer at the highest clock, in s of an unscaled profile.
        reduce_s: The same for the gradient reduction.
        optimizer_s: The same for the optimizer step.
        tail_clock_share: Share of these three times that scales with the clock.
        reduction_contention: Relative slowdown of the last backwards during the gradient reduction.
        launch_queue: Largest lead of the host over the GPU, in instructions; 0: no lead.
        host_lead_s: The host resumes this long before the end of a wait.
    """

    physics: Mapping[str, Any]
    top_clock_mhz: int | None = None
    power_scale: float = 1.0
    transfer_s: float = 0.0
    reduce_s: float = 0.0
    optimizer_s: float = 0.0
    tail_clock_share: float = 0.0
    reduction_contention: float = 0.0
    launch_queue: int = 0
    host_lead_s: float = 0.0


_TAILS: dict[str, Any] = {
    "transfer_s": 0.0015,
    "reduce_s": 0.030,
    "optimizer_s": 0.020,
    "tail_clock_share": 0.5,
    "reduction_contention": 0.08,
    "launch_queue": 8,
    "host_lead_s": 0.010,
}
_COMMON = {
    "request_stall_s": 0.0005,
    "query_s": 0.0005,
    "readings_period_s": 0.100,
    "power_window_s": 0.025,
    "sampling_duty": 0.25,
    "counter_period_s": 0.100,
    "noise": 0.01,
    "leakage_per_k": 0.002,
}
_A100 = {
    **_COMMON,
    "waiting_slope_w": 25.0,
    "switch_latency_s": 0.005,
    "switch_latency_by_clock": 4.0,
    "switch_latency_spread": 0.1,
    "switch_tail_share": 0.02,
    "switch_tail_s": 0.020,
}
_HOPPER = {
    **_A100,
    "blocking_power_w": 120.0,
    "waiting_slope_w": 40.0,
    "power_limit_w": 700.0,
    "power_limit_window_s": 0.100,
    "counter_window_s": 0.3,
}
# By the authors, driver 580.159.04, in November 2026: the governor of an H200, all else of an H100, of which the H200
# differs by little. 16 multiprocessors spin while it waits. The noise is that of an increment as fitted: one
# update in eight comes late, and tells of a longer time.
_H100 = {
    **_HOPPER,
    "blocking_power_w": 137.0,
    "power_limit_window_s": 0.020,
    "power_limit_rise": 3.0,
    "sampling_duty": 1.0,
    "counter_window_s": 0.012,
    "noise": 0.02,
}
_B200 = {
    **_HOPPER,
    "blocking_power_w": 180.0,
    "waiting_slope_w": 80.0,
    "power_limit_w": 1000.0,
    "power_limit_window_s": 0.005,
    "counter_period_s": 0.020,
}
_GH200 = {
    **_HOPPER,
    "switch_latency_s": 0.020,
    "switch_latency_by_clock": 9.0,
    "switch_latency_spread": 0.3,
    "switch_tail_share": 0.05,
    "switch_tail_s": 0.150,
    "counter_window_s": 1.0,
}

MODELS: Mapping[str, GpuModel] = {
    "kind": GpuModel({"noise": 0.01}),
    "a100": GpuModel(_A100, **_TAILS),
    "h100": GpuModel(_H100, top_clock_mhz=1980, power_scale=1.50, **_TAILS),
    "h200": GpuModel(_H100, top_clock_mhz=1980, power_scale=2.10, **_TAILS),
    "b200": GpuModel(_B200, top_clock_mhz=1965, power_scale=3.20, **_TAILS),
    "gh200": GpuModel(_GH200, top_clock_mhz=1980, power_scale=1.50, **_TAILS),
}
"""By the name in ``simulator.gpu``."""


def gpu_model(config: SimulatorConfig) -> GpuModel:
    """Return the model named in a configuration, with the configuration's own settings on top."""
    own = {name: getattr(config, name) for name in config.model_fields_set if getattr(config, name) is not None}
    model = MODELS[config.gpu]
    physics = {**model.physics, **{name: value for name, value in own.items() if name in CONSTANTS}}
    others = {name: own.get(name, getattr(model, name)) for name in GpuModel.__dataclass_fields__ if name != "physics"}
    return GpuModel(physics, **others)
