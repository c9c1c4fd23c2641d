"""The table at the end of a job."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from perseus_ds.config import Config
from perseus_ds.coordination.phases import Phase
from perseus_ds.messages import user_message
from perseus_ds.report.run_stats import RunStats

__all__ = ["closing_table", "ended_early"]

_ROWS = (
    ("iteration time", "iteration_time_s", "{:.3f} s"),
    ("energy per iteration (one pipeline)", "energy_j", "{:.0f} J"),
    ("average power (one pipeline)", "power_w", "{:.0f} W"),
)


def closing_table(summary: dict[str, Any]) -> str:
    """Return the closing table of a run.

    Args:
        summary: Content of ``summary.json``.

    Returns:
        Text of several lines.
    """
    where = "simulated GPUs" if summary["simulated"] else "measured on this job's GPUs"
    table = Table(title=f"Perseus, {summary['framework']}, {where}", title_justify="left")
    for heading in ("", "baseline", "predicted", "measured"):
        table.add_column(heading, justify="left" if not heading else "right")
    for title, key, form in _ROWS:
        cells = [
            form.format(summary[column][key]) if summary[column] else "-"
            for column in ("baseline", "predicted", "measured")
        ]
        table.add_row(title, *cells)
    table.add_row("saving", "", _percent(summary["predicted_saving"]), _percent(summary["saving"]))
    table.add_row("slowdown", "", "", _percent(summary["slowdown"]))
    table.add_row("profiling cost", "", "", f"{summary['profiling_iterations']} iterations")
    console = Console(width=110, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def ended_early(phase: Phase, stats: RunStats, config: Config) -> str | None:
    """Return a message where more iterations would have led to a plan; without clock changes the baseline never ends.

    Args:
        phase: In which the job ended.
        stats: All its iterations.
        config: The whole configuration.
    """
    before_profiling = config.warmup_iterations + config.baseline_iterations
    early = phase in (Phase.BASELINE, Phase.PROFILING, Phase.SOLVING)
    if phase in (Phase.WARMUP, Phase.BASELINE) and not stats.count(Phase.PROFILING):
        early = stats.last_iteration < before_profiling
    iterations = before_profiling + config.profiling.max_iterations + 2
    return user_message("ended-early", phase=phase.value, iterations=iterations) if early else None


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:+.2f} %"
