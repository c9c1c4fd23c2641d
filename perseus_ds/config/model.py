"""The configuration: one model, one place for defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from perseus_ds.config.section import Section
from perseus_ds.config.simulator import SimulatorConfig
from perseus_ds.objective_text import KEYS, objective_values

__all__ = [
    "Config",
    "DeviceConfig",
    "ObjectiveConfig",
    "PlannerConfig",
    "ProfilingConfig",
    "RejoinConfig",
    "ReportConfig",
    "StragglerConfig",
]


class ObjectiveConfig(Section):
    """The optimisation goal: text such as ``min_energy`` or ``power=12kW``, or one of the keys below."""

    min_time: bool = Field(default=False, description="As fast as the fastest plan, which is the default.")
    slowdown: float | None = Field(
        default=None, ge=1.0, le=3.0, description="Allowed iteration time, as a multiple of the fastest."
    )
    deadline_s: float | None = Field(default=None, gt=0, description="Allowed iteration time, in seconds.")
    min_energy: bool = Field(default=False, description="Use the least energy, at any iteration time.")
    power_cap_w: float | None = Field(
        default=None, gt=0, description="Allowed average power of one pipeline, in watts."
    )
    power_w: float | None = Field(default=None, gt=0, description="Allowed average power of the whole job, in watts.")
    ramp_w_per_s: float | None = Field(
        default=None,
        gt=0,
        description="An allowed power of the whole job, also an ordered one, changes by at most so many watts per "
        "second; default: at once.",
    )

    @model_validator(mode="before")
    @classmethod
    def _written(cls, data: Any) -> Any:
        """Accept the written form."""
        return objective_values(data) if isinstance(data, str) else data

    @model_validator(mode="after")
    def _one_only(self) -> ObjectiveConfig:
        given = [name for name in KEYS.values() if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(given)}")
        return self


class DeviceConfig(Section):
    """How to set clocks and read energy."""

    backend: Literal["auto", "nvml", "zeusd", "observe"] = Field(
        default="auto", description="Interface that sets the clocks."
    )
    zeusd_address: str = Field(default="/run/zeusd/zeusd.sock", description="UNIX socket of zeusd, or host:port.")
    counter_poll_s: float = Field(
        default=0.005,
        gt=0,
        le=1.0,
        description="Seconds between two reads of the energy counter, until there are plans.",
    )
    min_switch_interval_s: float = Field(
        default=0.0, ge=0, le=1.0, description="Shortest time between two clock requests."
    )
    max_mhz: int | None = Field(
        default=None,
        gt=0,
        description="Highest clock to request; default: `restore_mhz`, or the highest that the GPU has.",
    )
    restore_mhz: int | None = Field(
        default=None,
        gt=0,
        description="Your own clock lock on these GPUs, put back whenever Perseus lets go; default: none.",
    )
    foreign_clocks: Literal["respect", "take_back"] = Field(
        default="respect",
        description="When another program changes a clock: leave that GPU to it (respect), or set ours again.",
    )

    @model_validator(mode="after")
    def _within_the_rules(self) -> DeviceConfig:
        if self.max_mhz is not None and self.restore_mhz is not None and self.restore_mhz > self.max_mhz:
            raise ValueError(f"restore_mhz must not be above max_mhz ({self.max_mhz})")
        return self


class ProfilingConfig(Section):
    """How to measure time and energy per instruction in the live training."""

    mode: Literal["blocks", "iteration"] = Field(
        default="blocks", description="Change clocks within an iteration (blocks), or between iterations (iteration)."
    )
    max_iterations: int = Field(default=39, ge=1, description="Longest sweep, in iterations.")
    max_instruction_slowdown: float = Field(
        default=2.0, ge=1.0, description="Skip clocks that slow an instruction by more than this factor."
    )
    stop_after_increases: int = Field(
        default=5, ge=1, description="Skip lower clocks after this many consecutive increases of energy."
    )
    frequencies: int | None = Field(
        default=None, ge=2, description="Number of clocks to try, evenly spaced; default: all supported ones."
    )
    profile: Path | None = Field(default=None, description="Profile CSV, used instead of profiling.")
    reuse: bool = Field(
        default=True,
        description="Reuse the profile and plans of an earlier run of the same job in run_dir.",
    )
    cache_dir: Path | None = Field(
        default=None, description="Directory that keeps profiles for the next start; default: no cache."
    )


class PlannerConfig(Section):
    """How to solve and round the frontier."""

    tolerance: float = Field(
        default=0.0, ge=0, le=0.1, description="Allowed relative energy error; a larger one solves faster."
    )
    max_switches: int | None = Field(default=None, ge=0, description="Allowed clock switches per stage and iteration.")
    switch_penalty_j: float = Field(default=0.0, ge=0, description="Energy charged for each clock switch.")


class StragglerConfig(Section):
    """When to respond to a slow pipeline."""

    enabled: bool = Field(default=True, description="Respond to stragglers.")
    threshold: float = Field(
        default=1.05, gt=1.0, description="A stage slower than expected by this factor is a straggler."
    )
    onset_iterations: int = Field(
        default=2,
        ge=1,
        description="Consecutive slow iterations before the other pipelines slow down; more below a slowdown of 1.08.",
    )
    recovery_threshold: float = Field(
        default=1.03, gt=1.0, description="Below this factor a straggler counts as normal again."
    )
    recovery_iterations: int = Field(
        default=1, ge=1, description="Consecutive normal iterations before the other pipelines speed up again."
    )
    calm_iterations: int = Field(
        default=100,
        ge=1,
        description="Each relapse of a stage doubles its onset; this many normal iterations reset it.",
    )
    drift_iterations: int = Field(
        default=20,
        ge=2,
        description="Solve new plans after all pipelines run equally slower or faster for this many iterations.",
    )

    @model_validator(mode="after")
    def _hysteresis(self) -> StragglerConfig:
        if self.recovery_threshold > self.threshold:
            raise ValueError(f"recovery_threshold must not be above threshold ({self.threshold})")
        return self


class RejoinConfig(Section):
    """What follows a failure: Perseus comes back once all ranks answer, and begins later where it could not begin."""

    attempts: int = Field(
        default=3, ge=0, description="Failures within `within_s` to come back from; one more ends it for good."
    )
    within_s: float = Field(default=3600.0, gt=0, description="Seconds after which a failure no longer counts.")


class ReportConfig(Section):
    """Output for people and for monitoring."""

    html: bool = Field(default=True, description="Write report.html at the end.")
    log_every: int = Field(default=10, ge=0, description="Iterations between two log lines on rank 0; 0: no log lines.")
    energy_every: int = Field(
        default=200,
        ge=0,
        description="Iterations between two splits of the energy by kind of instruction (energy.csv); 0: none.",
    )
    prometheus_textfile: Path | None = Field(
        default=None, description="Metrics file for the textfile collector of node_exporter."
    )
    tensorboard: bool = Field(default=True, description="Write metrics to the framework's own TensorBoard/W&B monitor.")


class Config(Section):
    """The whole configuration file."""

    run_dir: Path = Field(description="Directory for profile, frontier, events, summary and report.")
    mode: Literal["enforce", "observe"] = Field(
        default="enforce", description="enforce: set clocks; observe: measure, plan, and set no clock."
    )
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig, description="The optimisation goal.")
    on_unsupported: Literal["error", "warn"] = Field(
        default="error",
        description="If a framework lacks what the hooks rely on, or runs in a mode that hides instructions: stop the "
        "job (error) or train without Perseus (warn).",
    )
    warmup_iterations: int = Field(default=3, ge=1, description="Training iterations to ignore at the start.")
    baseline_iterations: int = Field(
        default=8,
        ge=1,
        description="Iterations to measure at the default clocks: half before profiling, half after it.",
    )
    baseline_every: int = Field(
        default=5000,
        ge=0,
        description="Most iterations between two refreshes of the baseline, which take five iterations each; 0: none.",
    )
    max_slowdown: float = Field(
        default=1.02, ge=1.0, description="Raise the clocks if iterations exceed the planned time by this factor."
    )
    bus_timeout_s: float = Field(
        default=60.0, gt=0, le=86400, description="Perseus pauses if its ranks cannot communicate for this long."
    )
    rejoin: RejoinConfig = Field(default_factory=RejoinConfig)
    device: DeviceConfig = Field(default_factory=DeviceConfig)
    profiling: ProfilingConfig = Field(default_factory=ProfilingConfig)
    planner: PlannerConfig = Field(default_factory=PlannerConfig)
    straggler: StragglerConfig = Field(default_factory=StragglerConfig)
    report: ReportConfig = Field(default_factory=ReportConfig)
    simulator: SimulatorConfig | None = Field(default=None, description="Virtual GPUs instead of real ones.")
