"""The configuration section ``simulator``: virtual GPUs, their throttling and their faults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from perseus_ds.config.section import Section

__all__ = ["FaultConfig", "SimulatorConfig", "ThrottleConfig"]


class ThrottleConfig(Section):
    """A simulated GPU that is slow for a while."""

    stage: int = Field(ge=0, description="Pipeline stage of the GPU.")
    pipeline: int = Field(default=0, ge=0, description="Data-parallel replica of the GPU.")
    begin_iteration: int = Field(ge=0, description="First slow training iteration.")
    end_iteration: int = Field(ge=1, description="First training iteration at normal speed again.")
    slowdown: float = Field(
        default=1.0, ge=1.0, le=10.0, description="Instruction time, as a multiple of the normal at every clock."
    )
    ceiling_mhz: int | None = Field(
        default=None, gt=0, description="Clock that it does not exceed, which is what a hot GPU does."
    )


class FaultConfig(Section):
    """An NVML error of a simulated GPU."""

    stage: int = Field(ge=0, description="Pipeline stage of the GPU.")
    pipeline: int = Field(default=0, ge=0, description="Data-parallel replica of the GPU.")
    fault: Literal[
        "no_permission", "not_supported", "gpu_is_lost", "timeout", "unknown", "frozen_counter", "counter_wrap"
    ] = Field(description="Kind of the fault.")
    begin_iteration: int = Field(default=0, ge=0, description="First training iteration with the fault.")


class SimulatorConfig(Section):
    """Virtual GPUs beneath pynvml, for machines without GPUs. All output says so. Default `nothing`: as the model."""

    gpu: Literal["kind", "a100", "h100", "h200", "b200", "gh200"] = Field(
        default="kind", description="GPU model to simulate; kind: an ideal GPU."
    )
    profile: str = Field(default="gpt3-175b-a100-sxm", description="A shipped profile's name, or a profile CSV's path.")
    pipeline_profiles: tuple[str, ...] = Field(
        default=(), description="One profile per pipeline, for different GPUs; default: the same for all."
    )
    stages: tuple[int, ...] | None = Field(
        default=None, description="Stages of the profile to use; default: the first ones."
    )
    time_scale: float = Field(default=1.0, gt=0, le=100, description="Multiplies the profile's times and energies.")
    top_clock_mhz: int | None = Field(
        default=None, gt=0, le=5000, description="Highest clock; scales the clocks of the profile."
    )
    power_scale: float | None = Field(default=None, gt=0, le=10, description="Multiplies the power of instructions.")
    blocking_power_w: float | None = Field(
        default=None, gt=0, description="Power of a waiting GPU at the highest clock."
    )
    waiting_slope_w: float | None = Field(
        default=None, ge=0, description="Drop of that power down to the lowest clock; linear between."
    )
    power_limit_w: float | None = Field(default=None, gt=0, description="Power limit.")
    power_limit_window_s: float | None = Field(
        default=None,
        ge=0,
        le=10,
        description="The governor keeps the average over this window below the limit; 0: no governor.",
    )
    power_limit_rise: float | None = Field(
        default=None, ge=1, le=100, description="How much slower the governor raises the clock than it lowers it."
    )
    switch_latency_s: float | None = Field(default=None, ge=0, description="From a clock request to the new clock.")
    switch_latency_spread: float | None = Field(
        default=None, ge=0, le=1, description="The latency is uniform within ± this share."
    )
    switch_latency_by_clock: float | None = Field(
        default=None, ge=0, description="The latency grows by up to this share, by a fixed draw for each target clock."
    )
    switch_tail_share: float | None = Field(
        default=None, ge=0, le=1, description="Share of the switches that take longer."
    )
    switch_tail_s: float | None = Field(default=None, ge=0, description="Their mean additional time.")
    request_stall_s: float | None = Field(
        default=None, ge=0, le=1, description="Stall of the GPU after each clock request."
    )
    query_s: float | None = Field(default=None, ge=0, le=1, description="Duration of each NVML call.")
    readings_period_s: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Period at which the clock and power that NVML shows are renewed; 0: none.",
    )
    power_window_s: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The power that NVML shows is the mean over this time before it is renewed; 0: of that moment.",
    )
    counter_period_s: float | None = Field(default=None, gt=0, description="Update period of the energy counter.")
    sampling_duty: float | None = Field(
        default=None, gt=0, le=1.0, description="Fraction of the period in which power is sampled."
    )
    counter_window_s: float | None = Field(
        default=None, ge=0, le=10, description="Window of the average power that the energy counter integrates."
    )
    noise: float | None = Field(
        default=None, ge=0, lt=1.0, description="Relative noise of each energy counter increment and power reading."
    )
    leakage_per_k: float | None = Field(
        default=None, ge=0, le=0.1, description="Relative growth of the power per kelvin of warming."
    )
    thermal_resistance_k_per_w: float | None = Field(default=None, ge=0, le=1, description="Warming per watt.")
    thermal_window_s: float | None = Field(default=None, gt=0, description="Time constant of the warming.")
    transfer_s: float | None = Field(
        default=None,
        ge=0,
        le=10,
        description="Time of a transfer between stages at the highest clock, before scaling.",
    )
    reduce_s: float | None = Field(default=None, ge=0, le=60, description="The same for the gradient reduction.")
    optimizer_s: float | None = Field(default=None, ge=0, le=60, description="The same for the optimizer step.")
    tail_clock_share: float | None = Field(
        default=None, ge=0, le=1, description="Share of these three times that scales with the clock."
    )
    reduction_contention: float | None = Field(
        default=None, ge=0, le=1, description="Relative slowdown of backwards during the reduction."
    )
    microbatch_spread: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Relative standard deviation of the micro-batches' sizes, drawn anew in every iteration.",
    )
    launch_queue: int | None = Field(
        default=None, ge=0, le=256, description="Largest lead of the host over the GPU, in instructions; 0: no lead."
    )
    host_lead_s: float | None = Field(
        default=None, ge=0, le=1, description="The host resumes this long before the end of a wait."
    )
    seed: int = Field(default=0, description="Seed of the noise.")
    throttle: tuple[ThrottleConfig, ...] = Field(default=(), description="GPUs that are slow for a while.")
    faults: tuple[FaultConfig, ...] = Field(default=(), description="NVML errors to inject.")
