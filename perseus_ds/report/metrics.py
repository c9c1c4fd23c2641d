"""Live metrics: into the framework's own TensorBoard or W&B monitor, and into a file for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.rundir import write_atomically

__all__ = ["METRICS", "FrameworkMonitor", "Metrics", "PrometheusTextfile", "Sink", "measured_values"]

METRICS = {
    "iteration_time_seconds": "Time of the latest training iteration.",
    "energy_joules": "Energy of the latest training iteration, one pipeline.",
    "saving_ratio": "Energy saved in the latest iteration, as a share of the baseline's median.",
    "plan_time_seconds": "Iteration time that the plan in force predicts; 0 at the highest clock.",
    "t_prime_seconds": "Iteration time that the slowest pipeline can make (T').",
    "switches": "Clock switches in the latest iteration, one pipeline.",
    "late_switches": "Clock switches in the latest iteration that came after their instruction had begun.",
    "throttled_seconds": "Time since the iteration before that GPUs said they were held down, whole job.",
}
"""Name and meaning of every metric; on Prometheus all are gauges and begin with ``perseus_ds_``."""


class Sink(Protocol):
    """Where metrics go."""

    def write(self, iteration: int, values: Mapping[str, float]) -> None:
        """Take the values of one iteration, by names of ``METRICS``."""
        ...


class PrometheusTextfile:
    """A file for node_exporter's textfile collector, replaced as a whole at every iteration.

    Args:
        path: File whose name ends in ``.prom``, in a directory that exists.
        labels: Put on every metric.
    """

    def __init__(self, path: Path, labels: Mapping[str, str]) -> None:
        self._path = path
        self._labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())

    def write(self, iteration: int, values: Mapping[str, float]) -> None:
        """See ``Sink``."""
        lines = []
        for name, value in {"iteration": iteration, **values}.items():
            lines += [
                f"# HELP perseus_ds_{name} {METRICS.get(name, 'Latest training iteration.')}",
                f"# TYPE perseus_ds_{name} gauge",
                f"perseus_ds_{name}{{{self._labels}}} {value:.9g}",
            ]
        write_atomically(self._path, "\n".join(lines) + "\n")


class FrameworkMonitor:
    """The training framework's own monitor.

    Args:
        write_events: Takes (tag, value, step) rows, as DeepSpeed's monitor does.
    """

    def __init__(self, write_events: Callable[[Sequence[tuple[str, float, int]]], None]) -> None:
        self._write_events = write_events

    def write(self, iteration: int, values: Mapping[str, float]) -> None:
        """See ``Sink``."""
        self._write_events([(f"perseus_ds/{name}", value, iteration) for name, value in values.items()])


class Metrics:
    """All sinks of a run. One that fails is dropped, after one word about it: metrics never stop a training.

    Args:
        sinks: Where to write.
        complain: Gets one text per sink that fails.
    """

    def __init__(self, sinks: Sequence[Sink], complain: Callable[[str], None]) -> None:
        self._sinks = list(sinks)
        self._complain = complain

    def write(self, iteration: int, values: Mapping[str, float]) -> None:
        """Hand an iteration's values to every sink; those that are not known (NaN) are left out."""
        known = {name: float(value) for name, value in values.items() if value == value}
        for sink in list(self._sinks):
            try:
                sink.write(iteration, known)
            except Exception as error:
                self._sinks.remove(sink)
                self._complain(f"{type(sink).__name__}: {error}")


def measured_values(round_result: RoundResult, switches: float, baseline_j: float | None) -> dict[str, float]:
    """Return the metrics of an iteration that come from measuring it.

    Args:
        round_result: What all ranks have said about it.
        switches: Clock switches of one pipeline.
        baseline_j: The baseline's median energy; None while not known.
    """
    energy_j = round_result.pipeline_energy_j
    return {
        "iteration_time_seconds": round_result.iteration_time_s,
        "energy_joules": energy_j,
        "saving_ratio": 1.0 - energy_j / baseline_j if baseline_j else float("nan"),
        "switches": switches,
        "late_switches": float(round_result.field("late_switches").sum()),
        "throttled_seconds": float(round_result.field("throttled_s").sum()),
    }


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
