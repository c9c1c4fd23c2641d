"""The metric sinks of a configuration."""

from __future__ import annotations

from perseus_ds.config import Config
from perseus_ds.patches.monitors import framework_monitors
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.metrics import FrameworkMonitor, PrometheusTextfile, Sink

__all__ = ["metric_sinks"]


def metric_sinks(config: Config, topology: Topology, coordinates: bool) -> list[Sink]:
    """Return the sinks of a rank; most ranks have none.

    Args:
        config: The whole configuration.
        topology: Position of the rank.
        coordinates: Whether this is the coordinating rank.
    """
    sinks: list[Sink] = []
    if coordinates and config.report.prometheus_textfile is not None:
        labels = {
            "run": config.run_dir.name,
            "framework": topology.framework,
            "gpus": "simulated" if config.simulator else "real",
        }
        sinks.append(PrometheusTextfile(config.report.prometheus_textfile, labels))
    if config.report.tensorboard:
        sinks += [FrameworkMonitor(write_events) for write_events in framework_monitors(coordinates)]
    return sinks
