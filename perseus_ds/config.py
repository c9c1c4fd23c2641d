"""The configuration: one YAML file, one model, one place for defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from perseus_ds.messages import PerseusError

__all__ = [
    "Config",
    "DeviceConfig",
    "FaultConfig",
    "ObjectiveConfig",
    "PlannerConfig",
    "ProfilingConfig",
    "ReportConfig",
    "SimulatorConfig",
    "StragglerConfig",
    "ThrottleConfig",
    "load_config",
    "parse_config",
]


class _Section(BaseModel):
    """A part of the file: unknown keys are errors, numbers are finite, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _at_home(cls, value: Any) -> Any:
        """Read a leading ``~`` as a shell does: no text here begins with one unless it is a path."""
        if isinstance(value, tuple):
            return tuple(cls._at_home(one) for one in value)
        if not isinstance(value, str | Path) or not str(value).startswith("~"):
            return value
        expanded = os.path.expanduser(value)
        if expanded.startswith("~"):
            raise ValueError("there is no such home directory; write the path in full")
        return type(value)(expanded)


class ObjectiveConfig(_Section):
    """What to optimise for: ``min_time``, ``min_energy``, or a mapping with one of the fields."""

    slowdown: float | None = Field(
        default=None, ge=1.0, le=3.0, description="Iteration time allowed, as a multiple of the fastest."
    )
    deadline_s: float | None = Field(default=None, gt=0, description="Iteration time allowed, in seconds.")
    min_energy: bool = Field(default=False, description="Spend the least energy, whatever the iteration time.")
    power_cap_w: float | None = Field(
        default=None, gt=0, description="Average power allowed for one pipeline, in watts."
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        """Accept the two objectives that need no number by their names."""
        if isinstance(data, str):
            if data not in ("min_time", "min_energy"):
                raise ValueError("allowed: min_time, min_energy, or one of slowdown, deadline_s, power_cap_w")
            return {"min_energy": data == "min_energy"}
        return data

    @model_validator(mode="after")
    def _one_only(self) -> ObjectiveConfig:
        chosen = [
            self.slowdown is not None,
            self.deadline_s is not None,
            self.min_energy,
            self.power_cap_w is not None,
        ]
        if sum(chosen) > 1:
            raise ValueError("give one of slowdown, deadline_s, min_energy, power_cap_w")
        return self


class DeviceConfig(_Section):
    """How clocks are set and energy is read."""

    backend: Literal["auto", "nvml", "zeusd", "observe"] = Field(default="auto", description="Who sets the clocks.")
    zeusd_address: str = Field(default="/run/zeusd/zeusd.sock", description="zeusd's UNIX socket, or host:port.")
    counter_poll_s: float = Field(default=0.005, gt=0, le=1.0, description="How often the energy counter is read.")
    min_switch_interval_s: float = Field(
        default=0.0, ge=0, le=1.0, description="Least time between two clock requests."
    )


class ProfilingConfig(_Section):
    """How time and energy per instruction are measured in the live training."""

    mode: Literal["blocks", "iteration"] = Field(
        default="blocks", description="Frequencies change within an iteration (blocks) or between iterations."
    )
    max_iterations: int = Field(default=40, ge=1, description="Upper bound on the sweep's iterations.")
    max_slowdown: float = Field(
        default=2.0, ge=1.0, description="Frequencies that slow an instruction by more are left out."
    )
    stop_after_increases: int = Field(default=5, ge=1, description="Stop after this many consecutive energy increases.")
    frequencies: int | None = Field(
        default=None, ge=2, description="Clocks to try, spread evenly; default: every supported one."
    )
    profile: Path | None = Field(default=None, description="A profile CSV to use instead of profiling.")
    reuse: bool = Field(
        default=True,
        description="Go on with profile and plans that an earlier run of the same job has left in run_dir.",
    )
    cache_dir: Path | None = Field(
        default=None, description="Where profiles are kept for the next start; default: no cache."
    )


class PlannerConfig(_Section):
    """How the frontier is solved and rounded."""

    tolerance: float = Field(default=0.0, ge=0, le=0.1, description="Relative energy error allowed for thinner hulls.")
    max_switches: int | None = Field(default=None, ge=0, description="Clock switches allowed per stage and iteration.")
    switch_penalty_j: float = Field(default=0.0, ge=0, description="Energy charged for each clock switch.")


class StragglerConfig(_Section):
    """When a slow pipeline is reacted to."""

    enabled: bool = Field(default=True, description="React to stragglers at all.")
    threshold: float = Field(
        default=1.05, gt=1.0, description="A stage this many times slower than expected is a straggler."
    )
    onset_iterations: int = Field(
        default=2, ge=1, description="Consecutive slow iterations before slowing the others down."
    )
    recovery_threshold: float = Field(
        default=1.03, gt=1.0, description="Below this multiple a straggler is normal again."
    )
    recovery_iterations: int = Field(
        default=1, ge=1, description="Consecutive normal iterations before speeding up again."
    )
    calm_iterations: int = Field(
        default=100,
        ge=1,
        description="Normal iterations after which a stage's relapses, each of which doubles the onset, are forgotten.",
    )
    drift_iterations: int = Field(
        default=20,
        ge=2,
        description="Iterations that all pipelines must be slower, or faster, alike before planning anew.",
    )

    @model_validator(mode="after")
    def _hysteresis(self) -> StragglerConfig:
        if self.recovery_threshold > self.threshold:
            raise ValueError(f"recovery_threshold must not be above threshold ({self.threshold})")
        return self


class ThrottleConfig(_Section):
    """A simulated GPU that is slow for a while."""

    stage: int = Field(ge=0, description="Pipeline stage of the GPU.")
    pipeline: int = Field(default=0, ge=0, description="Data-parallel replica of the GPU.")
    begin_iteration: int = Field(ge=0, description="First slow training iteration.")
    end_iteration: int = Field(ge=1, description="First training iteration at normal speed again.")
    slowdown: float = Field(gt=1.0, le=10.0, description="Instruction time, as a multiple of the normal.")


class FaultConfig(_Section):
    """An NVML error that a simulated GPU gives."""

    stage: int = Field(ge=0, description="Pipeline stage of the GPU.")
    pipeline: int = Field(default=0, ge=0, description="Data-parallel replica of the GPU.")
    fault: Literal[
        "no_permission", "not_supported", "gpu_is_lost", "timeout", "unknown", "frozen_counter", "counter_wrap"
    ] = Field(description="What goes wrong.")
    begin_iteration: int = Field(default=0, ge=0, description="First training iteration with the fault.")


class SimulatorConfig(_Section):
    """Virtual GPUs beneath pynvml, for machines without any. Every result says so."""

    profile: str = Field(default="gpt3-175b-a100-sxm", description="A shipped profile's name, or a profile CSV's path.")
    pipeline_profiles: tuple[str, ...] = Field(
        default=(), description="A profile for each pipeline, where their GPUs differ; default: the same for all."
    )
    stages: tuple[int, ...] | None = Field(
        default=None, description="Stages of the profile to use; default: the first ones."
    )
    time_scale: float = Field(default=1.0, gt=0, le=100, description="Multiplies the profile's times and energies.")
    blocking_power_w: float = Field(default=83.64, gt=0, description="Power of a GPU that waits.")
    switch_latency_s: float = Field(default=0.010, ge=0, description="From a clock request to the new clock.")
    counter_period_s: float = Field(default=0.050, gt=0, description="Update period of the energy counter.")
    sampling_duty: float = Field(
        default=1.0, gt=0, le=1.0, description="Fraction of the period in which power is sampled."
    )
    noise: float = Field(default=0.01, ge=0, lt=1.0, description="Relative noise of each energy counter increment.")
    seed: int = Field(default=0, description="Seed of the noise.")
    throttle: tuple[ThrottleConfig, ...] = Field(default=(), description="GPUs that are slow for a while.")
    faults: tuple[FaultConfig, ...] = Field(default=(), description="NVML errors to inject.")


class ReportConfig(_Section):
    """What is written for people and for monitoring."""

    html: bool = Field(default=True, description="Write report.html at the end.")
    log_every: int = Field(default=10, ge=0, description="Iterations between two log lines on rank 0; 0: none.")
    prometheus_textfile: Path | None = Field(default=None, description="File to write metrics to, for node_exporter.")
    tensorboard: bool = Field(default=True, description="Write metrics to the framework's own TensorBoard/W&B monitor.")


class Config(_Section):
    """The whole configuration file."""

    run_dir: Path = Field(description="Directory for profile, frontier, events, summary and report.")
    mode: Literal["enforce", "observe"] = Field(
        default="enforce", description="observe: profile and plan, set no clock."
    )
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig, description="What to optimise for.")
    on_unsupported: Literal["error", "warn"] = Field(
        default="error",
        description="An unsupported framework version stops the job (error) or trains without us (warn).",
    )
    warmup_iterations: int = Field(default=3, ge=1, description="Training iterations ignored at the start.")
    baseline_iterations: int = Field(default=8, ge=1, description="Iterations measured at the highest clock.")
    max_slowdown: float = Field(
        default=1.02, ge=1.0, description="Iteration time beyond this multiple of the plan's: step back."
    )
    bus_timeout_s: float = Field(
        default=60.0, gt=0, le=86400, description="Perseus switches itself off when its ranks cannot talk for so long."
    )
    device: DeviceConfig = Field(default_factory=DeviceConfig)
    profiling: ProfilingConfig = Field(default_factory=ProfilingConfig)
    planner: PlannerConfig = Field(default_factory=PlannerConfig)
    straggler: StragglerConfig = Field(default_factory=StragglerConfig)
    report: ReportConfig = Field(default_factory=ReportConfig)
    simulator: SimulatorConfig | None = Field(default=None, description="Use virtual GPUs instead of real ones.")


def load_config(path: str | Path) -> Config:
    """Read and check a configuration file.

    Args:
        path: YAML file.

    Returns:
        The configuration.

    Raises:
        PerseusError: One line naming file, key, value and what is allowed.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise PerseusError("config-missing", file=file) from error
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise PerseusError("config-not-yaml", file=file, detail=f"line {line} is not UTF-8") from error
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-01
        raise PerseusError("config-not-yaml", file=file, detail=error) from error
    if data is None:
        raise PerseusError("config-empty", file=file)
    return parse_config(data, str(file))


def parse_config(data: Any, source: str) -> Config:
    """Check configuration data that is already parsed.

    Args:
        data: What the YAML or the ``"perseus"`` section of a DeepSpeed JSON holds.
        source: Name of the file, for messages.

    Returns:
        The configuration.

    Raises:
        PerseusError: One line naming file, key, value and what is allowed.
    """
    if not isinstance(data, dict):
        raise PerseusError("config-not-mapping", file=source, found=type(data).__name__)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise _first_error(error, source) from error


def _first_error(error: ValidationError, source: str) -> PerseusError:
    """Turn pydantic's first complaint into one line."""
    mistakes = error.errors()
    # A misspelt key is the cause of a missing one: name it first.
    detail = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    path = detail["loc"]
    key = ".".join(str(part) for part in path)
    if detail["type"] == "extra_forbidden":
        return PerseusError("config-unknown-key", file=source, key=key, allowed=", ".join(_allowed_keys(path[:-1])))
    return PerseusError("config-bad-value", file=source, key=key, value=detail["input"], detail=detail["msg"])


def _allowed_keys(path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section at ``path``."""
    sections: dict[str, type[BaseModel]] = {
        "device": DeviceConfig,
        "profiling": ProfilingConfig,
        "planner": PlannerConfig,
        "straggler": StragglerConfig,
        "report": ReportConfig,
        "simulator": SimulatorConfig,
        "objective": ObjectiveConfig,
        "throttle": ThrottleConfig,
        "faults": FaultConfig,
    }
    names = [part for part in path if isinstance(part, str)]
    return sorted((sections[names[-1]] if names else Config).model_fields)
