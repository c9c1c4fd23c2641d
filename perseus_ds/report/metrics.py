"""Live metrics, for the framework's own TensorBoard or W&B monitor and for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.profiling.breakdown import RankEnergy
from perseus_ds.rundir import write_atomically

__all__ = ["METRICS", "FrameworkMonitor", "Metrics", "PrometheusTextfile", "Sink", "measured_values"]

METRICS = {
    "iteration_time_seconds": "Time of the latest training iteration.",
    "energy_joules": "Energy of the latest training iteration, one pipeline.",
    "power_watts": "Average power of the iteration before the latest, all GPUs of the job.",
    "power_target_watts": "Power that the job may draw by the objective in force; 0: any.",
    "saving_ratio": "Energy saved in the latest iteration, relative to the median of the baseline.",
    "plan_time_seconds": "Iteration time predicted by the current plan; 0 at the default clocks.",
    "t_prime_seconds": "Shortest iteration time of the slowest pipeline (T').",
    "switches": "Clock switches in the latest iteration, one pipeline.",
    "late_switches": "Clock switches in the latest iteration that came after the first 3 % of their instruction.",
    "throttled_seconds": "Time of GPU throttling in the latest iteration, all GPUs of the job.",
}
"""Name and meaning of every metric; on Prometheus all are gauges with the prefix ``perseus_ds_``.

Besides these, ``forward_energy_joules`` and the like come with each split of the energy, and those of each rank.
"""
_MEANINGS = {**METRICS, "iteration": "Latest training iteration."}
_BY_KIND = "Energy of the latest split by kind, one iteration of one pipeline."
_BY_RANK = "Energy of the latest split by rank, stage and kind, one iteration; without a rank the mean of the stage's."


class Sink(Protocol):
    """A destination of metrics."""

    def write(self, iteration: int, values: Mapping[str, float], ranks: Sequence[RankEnergy]) -> None:
        """Take the values of one iteration, keyed by the names in ``METRICS``, and the latest split of the energy."""
        ...


class PrometheusTextfile:
    """A file for the textfile collector of node_exporter, replaced as a whole at every iteration.

    Args:
        path: File name ending in ``.prom``, in an existing directory.
        labels: Labels of every metric.
    """

    def __init__(self, path: Path, labels: Mapping[str, str]) -> None:
        self._path = path
        self._labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())

    def write(self, iteration: int, values: Mapping[str, float], ranks: Sequence[RankEnergy] = ()) -> None:
        """See ``Sink``."""
        lines = []
        for name, value in {"iteration": iteration, **values}.items():
            lines += [
                f"# HELP perseus_ds_{name} {_MEANINGS.get(name, _BY_KIND)}",
                f"# TYPE perseus_ds_{name} gauge",
                f"perseus_ds_{name}{{{self._labels}}} {value:.9g}",
            ]
        if ranks:
            lines += [f"# HELP perseus_ds_rank_energy_joules {_BY_RANK}", "# TYPE perseus_ds_rank_energy_joules gauge"]
        for row in ranks:
            place = {"rank": row.rank, "pipeline": row.pipeline, "stage": row.stage, "kind": row.energy.kind}
            labels = "".join(f',{name}="{value}"' for name, value in place.items() if value is not None)
            lines.append(f"perseus_ds_rank_energy_joules{{{self._labels}{labels}}} {row.energy.energy_j:.9g}")
        write_atomically(self._path, "\n".join(lines) + "\n")


class FrameworkMonitor:
    """The training framework's own monitor.

    Args:
        write_events: Takes (tag, value, step) rows, like DeepSpeed's monitor.
    """

    def __init__(self, write_events: Callable[[Sequence[tuple[str, float, int]]], None]) -> None:
        self._write_events = write_events
        self._told: Sequence[RankEnergy] = ()

    def write(self, iteration: int, values: Mapping[str, float], ranks: Sequence[RankEnergy] = ()) -> None:
        """See ``Sink``. A split is told once."""
        named = dict(values)
        if ranks is not self._told:
            self._told = ranks
            named |= {_tag(row): row.energy.energy_j for row in ranks}
        self._write_events([(f"perseus_ds/{name}", value, iteration) for name, value in named.items()])


class Metrics:
    """All sinks of a run. A failing sink is dropped after one complaint: metrics never stop the training.

    Args:
        sinks: The destinations.
        complain: Called with one text per failing sink.
    """

    def __init__(self, sinks: Sequence[Sink], complain: Callable[[str], None]) -> None:
        self._sinks = list(sinks)
        self._complain = complain

    def write(self, iteration: int, values: Mapping[str, float], ranks: Sequence[RankEnergy] = ()) -> None:
        """Pass the values of an iteration to every sink, without unknown ones (NaN), and the latest split."""
        known = {name: float(value) for name, value in values.items() if value == value}
        for sink in list(self._sinks):
            try:
                sink.write(iteration, known, ranks)
            except Exception as error:
                self._sinks.remove(sink)
                self._complain(f"{type(sink).__name__}: {error}")


def measured_values(round_result: RoundResult, switches: float, baseline_j: float | None) -> dict[str, float]:
    """Return the measured metrics of an iteration.

    Args:
        round_result: The reports of all ranks about it.
        switches: Clock switches of one pipeline.
        baseline_j: Median energy of the baseline; None while unknown.
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


def _tag(row: RankEnergy) -> str:
    where = f"stage_{row.stage}" if row.rank is None else f"rank_{row.rank}_stage_{row.stage}"
    return f"{where}/{row.energy.kind}_energy_joules"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
