"""The configuration: one YAML file, one model, one place for defaults."""

from perseus_ds.config.model import (
    Config,
    DeviceConfig,
    ObjectiveConfig,
    PlannerConfig,
    ProfilingConfig,
    ReportConfig,
    StragglerConfig,
)
from perseus_ds.config.reading import load_config, parse_config
from perseus_ds.config.simulator import FaultConfig, SimulatorConfig, ThrottleConfig

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
