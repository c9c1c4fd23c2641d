"""``report.html``: one self-contained file, from a run directory alone."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.report.charts import (
    curve_charts,
    frontier_chart,
    history_charts,
    other_planners,
    plans_by_switches,
    switches_chart,
)
from perseus_ds.report.claims import claims_of
from perseus_ds.report.html_parts import (
    exact,
    figure_html,
    legend_html,
    one_digit,
    percent,
    short,
    table_html,
)
from perseus_ds.report.power_shape import power_shape_html
from perseus_ds.report.rundata import Interval, RunData, read_run
from perseus_ds.report.timeline import power_chart, timeline_chart, timeline_of
from perseus_ds.rundir import write_atomically

__all__ = ["render", "write_report"]

_PAGE = Path(__file__).parent / "page.html"
_FIGURES = (
    ("iteration time", "iteration_time_s", "{:.4f} s"),
    ("energy per iteration, one pipeline", "energy_j", "{:.1f} J"),
    ("average power, one pipeline", "power_w", "{:.1f} W"),
)
_FEW_INSTRUCTIONS = 1000  # beyond, plans with bounded switches would hold up a job's end for minutes
_COLUMNS = ("baseline", "predicted", "measured")


def write_report(directory: str | Path) -> Path:
    """Write ``report.html`` for a run directory.

    Args:
        directory: Of a finished or running job.

    Returns:
        The file written.

    Raises:
        PerseusError: The directory is no run directory, or one of its files is damaged.
        OSError: The directory is not writable.
    """
    data = read_run(directory)
    file = data.path / "report.html"
    write_atomically(file, render(data))
    return file


def render(data: RunData) -> str:
    """Return the page of a run, without the parts it has not reached yet."""
    summary = data.summary
    sections = [_cards(data), _comparison(data), power_shape_html(data), _claims(data)]
    if data.frontier is not None:
        sections.append(_frontier(data))
    if data.problem is not None and data.plan is not None:
        sections.append(_timelines(data, data.plan))
    sections += [_history(data), _stragglers(data), _clocks(data), _curves(data), _events(data), _provenance(data)]
    replicas = "one pipeline" if summary["pipelines"] == 1 else f"{summary['pipelines']} pipelines"
    layout = f"{replicas} of {summary['stages']} stages, {summary['microbatches']} micro-batches"
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=escape(f"{data.path.name}, {summary['framework']}"),
        subtitle=escape(layout),
        gpus="simulated GPUs" if summary["simulated"] else "measured on this job's GPUs",
        body="\n".join(sections),
    )


def _cards(data: RunData) -> str:
    summary = data.summary
    cards = [
        _card("saving", summary["saving"], percent, "energy saved, measured", data.confidence("energy_j")),
        _card("slowdown", summary["slowdown"], percent, "iteration time", data.confidence("iteration_time_s")),
        _card("predicted_saving", summary["predicted_saving"], percent, "saving predicted by the plan"),
        _card("profiling_iterations", summary["profiling_iterations"], str, "iterations spent on profiling"),
        _card("switches_per_iteration", summary["switches_per_iteration"], one_digit, "clock switches per iteration"),
        _card("late_switches", summary["late_switches"], "{:.0f}".format, "late clock switches, total"),
        _card("share_at_clock", summary.get("share_at_clock"), "{:.1%}".format, "of an instruction at its clock"),
    ]
    missing = "" if summary["measured"] else "<p>No plan was active for long enough to measure it.</p>"
    return f'<div class="cards">{"".join(cards)}</div>{missing}'


def _card(key: str, value: Any, form: Any, title: str, interval: Interval | None = None) -> str:
    shown = "–" if value is None else form(value)
    between = (
        f"<br>95 % confidence: {percent(interval.low)} to {percent(interval.high)}" if interval is not None else ""
    )
    return f"<div><b {exact(key, value)}>{shown}</b><span>{title}{between}</span></div>"


def _comparison(data: RunData) -> str:
    """Compare prediction and measurement: the fidelity of the plan."""
    rows = []
    for title, key, form in _FIGURES:
        figures = [data.summary[column] and data.summary[column][key] for column in _COLUMNS]
        cells = [
            f'<td class="number" {exact(f"{column}.{key}", value)}>{"–" if value is None else form.format(value)}</td>'
            for column, value in zip(_COLUMNS, figures, strict=True)
        ]
        _, predicted, measured = figures
        off = percent(measured / predicted - 1.0) if predicted and measured else "–"
        rows.append(f'<tr><td>{title}</td>{"".join(cells)}<td class="number">{off}</td></tr>')
    heads = "".join(f'<th class="number">{name}</th>' for name in (*_COLUMNS, "measured over predicted"))
    return (
        "<h2>Before and after</h2><p>Medians over steady iterations. Energies are those of one data-parallel pipeline. "
        "The baseline ran in this job, at the clocks that GPUs have without Perseus; the prediction ages with it.</p>"
        f'<div class="wide"><table><tr><th></th>{heads}</tr>{"".join(rows)}</table></div>'
    )


def _claims(data: RunData) -> str:
    """Set what was measured against what the virtual GPUs know."""
    claims = claims_of(data)
    if claims is None:
        return ""
    return (
        "<h3>Claimed against true</h3><p>Virtual GPUs keep the truth, which nobody who measures or plans can see. "
        f"Medians of the same iterations.</p>{table_html(('', 'claimed', 'true'), claims.rows())}"
    )


def _frontier(data: RunData) -> str:
    assert data.frontier is not None
    frontier, planned, summary = data.frontier, data.planned, data.summary
    others = other_planners(data.problem, planned["time_s"]) if data.problem is not None and planned else {}
    text = (
        f"<h2>Frontier</h2><p>T<sub>min</sub> {frontier['t_min_s']:.4f} s, T* {frontier['t_star_s']:.4f} s, "
        f"{frontier['breakpoints']} breakpoints. The line is the least possible energy for each iteration time. "
        "Points are plans for real GPU clocks."
    )
    if data.problem is not None and (uneven := data.problem.uneven) is not None:
        text += f" Micro-batches differ by ±{100 * uneven.spread:.0f} %: times are expected values"
        text += f", iterations differ by ±{data.plan.deviation_s:.3f} s." if data.plan is not None else "."
    if planned:
        gap = planned["energy_j"] / planned["lower_bound_j"] - 1.0
        text += f" The chosen plan uses at most {100 * gap:.3f} % more than the least possible."
    shown = (
        ("chosen", "chosen plan, as predicted when it was made", planned),
        ("measured", "measured", summary["measured"]),
        ("baseline", "baseline, measured", summary["baseline"]),
        ("other", ", ".join(others) + " on the same profile and DAG", others),
    )
    legend = legend_html((colour, title) for colour, title, there in shown if there)
    parts = [text, "</p>", figure_html(frontier_chart(data, others), legend)]
    if others:
        parts.append(_planner_table(data, others))
    if data.problem is not None and data.plan is not None:
        parts += ["<h3>Energy against clock switches</h3>", _switches(data.problem, data.plan)]
    return "".join(parts)


def _switches(problem: Problem, plan: Plan) -> str:
    """Draw the cost of fewer clock switches, unless computing it would delay the end of the job."""
    count = len(problem.dag.instructions)
    if count > _FEW_INSTRUCTIONS:
        return (
            f"<p>Omitted: with {count} instructions per iteration, plans with bounded switches take minutes. "
            f"The chart appears for up to {_FEW_INSTRUCTIONS} instructions.</p>"
        )
    caption = (
        "Plans as fast as the chosen one (outlined), with bounded clock switches per stage. The line assumes "
        "immediate clock changes; a plan that allows for late ones lies above it."
    )
    return figure_html(switches_chart(plans_by_switches(problem, plan), plan), caption)


def _planner_table(data: RunData, others: dict[str, Plan]) -> str:
    assert data.frontier is not None
    assert data.planned is not None
    highest_j = data.frontier["max_energy_j"]
    rows = [("Perseus, the chosen plan", data.planned["time_s"], data.planned["energy_j"], data.planned["switches"])]
    rows += [(title, plan.time_s, plan.energy_j, plan.switches) for title, plan in others.items()]
    cells = "".join(
        f'<tr><td>{title}</td><td class="number">{time_s:.4f} s</td><td class="number">{energy_j:.1f} J</td>'
        f'<td class="number">{percent(1.0 - energy_j / highest_j)}</td><td class="number">{switches}</td></tr>'
        for title, time_s, energy_j, switches in rows
    )
    heads = "".join(
        f'<th class="number">{name}</th>' for name in ("iteration time", "energy", "saving", "switches per iteration")
    )
    return f'<div class="wide"><table><tr><th>predicted, same profile and DAG</th>{heads}</tr>{cells}</table></div>'


def _timelines(data: RunData, plan: Plan) -> str:
    problem = data.problem
    assert problem is not None
    before = timeline_of(problem, evaluate(problem, max_frequencies(problem)))
    after = timeline_of(problem, plan)
    longest_s = max(before.time_s, after.time_s)
    legend = legend_html(
        [("forward", "forward"), ("backward", "backward"), ("wait", "waiting, transfers, reduction and optimizer")]
    )
    outline = "<br>Paler means a lower clock. An outline marks a critical path. The dashed line is the end."
    return "".join(
        [
            "<h2>One iteration before and after</h2>",
            "<p>Computed on the DAG of the observed trace, with the measured times.</p>",
            "<h3>Before: highest clock</h3>",
            figure_html(timeline_chart(before, "Timeline at the highest clock", longest_s), legend + outline),
            "<h3>After: the plan</h3>",
            figure_html(timeline_chart(after, "Timeline of the plan", longest_s), legend + outline),
            "<h3>Power</h3>",
            figure_html(
                power_chart([(before, "baseline"), (after, "chosen")], longest_s),
                legend_html([("baseline", "before"), ("chosen", "after")]),
            ),
        ]
    )


def _history(data: RunData) -> str:
    figures = "".join(figure_html(chart, "") for chart in history_charts(data))
    slow = [("straggler", "straggler")] if data.summary["stragglers"] else []
    legend = legend_html([("measured", "measured"), ("chosen", "all ranks switch plans"), *slow])
    return f"<h2>The run</h2>{legend}{figures}" if data.iterations else ""


def _stragglers(data: RunData) -> str:
    rows = data.summary["stragglers"]
    if not rows:
        return ""
    names = [(name, name.replace("_", " ")) for name in rows[0]]
    heads = ("", *(f"straggler {number}" for number in range(1, len(rows) + 1)))
    return (
        f"<h3>Stragglers</h3>{table_html(heads, [[title, *(row.get(name) for row in rows)] for name, title in names])}"
    )


def _clocks(data: RunData) -> str:
    """Show how the coordinator's GPU followed its clock requests: a request alone proves nothing."""
    ends = [event["clocks"] for event in data.events if event["event"] == "end" and "clocks" in event]
    if not ends:
        return ""
    rows = [(name.replace("_", " "), value) for name, value in ends[-1].items() if name != "latency_by_clock"]
    heads = ("target MHz", "switches", "median latency, s", "95th percentile, s")
    latencies = [(mhz, *figures) for mhz, figures in ends[-1].get("latency_by_clock", {}).items()]
    by_clock = table_html(heads, latencies) if latencies else ""
    return f"<h3>How the coordinator's GPU followed its clock requests</h3>{table_html(('', ''), rows)}{by_clock}"


def _curves(data: RunData) -> str:
    charts = curve_charts(data)
    if not charts:
        return ""
    legend = legend_html([("forward", "forward"), ("backward", "backward")])
    pairs = "".join(
        f'<h3>Stage {stage}</h3><figure class="pair"><div>{energy}</div><div>{time}</div></figure>'
        for stage, energy, time in charts
    )
    return (
        "<h2>Profile</h2><p>Time and energy of one GPU per instruction and clock, measured in the "
        f"live training. Bars are 95 % confidence intervals.</p>{legend}{pairs}"
    )


def _events(data: RunData) -> str:
    rows = [
        [
            datetime.fromtimestamp(event["time"], timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
            event["iteration"],
            event["event"],
            ", ".join(
                f"{name} {short(value)}" for name, value in event.items() if name not in ("time", "iteration", "event")
            ),
        ]
        for event in data.events
    ]
    return f"<h2>Events</h2>{table_html(('UTC', 'iteration', 'event', ''), rows)}" if rows else ""


def _provenance(data: RunData) -> str:
    if not data.provenance:
        return ""
    gpu, versions = data.provenance["gpu"], data.provenance["versions"]
    return (
        f"<h2>Configuration and versions</h2>{table_html(('GPU', ''), gpu.items())}"
        f"{table_html(('software', ''), versions.items())}"
        f"<details open><summary>Configuration</summary><pre>"
        f"{escape(json.dumps(data.provenance['config'], indent=2))}</pre></details>"
    )
