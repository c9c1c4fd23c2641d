"""``report.html``: one self-contained file, from a run directory alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
    """Make ``report.html`` of a run directory.

    Args:
        directory: Of a run that is over or not.

    Returns:
        The file written.

    Raises:
        PerseusError: The directory is no run directory, or a file in it is damaged.
        OSError: It cannot be written to.
    """
    data = read_run(directory)
    file = data.path / "report.html"
    write_atomically(file, render(data))
    return file


def render(data: RunData) -> str:
    """Return the page of a run. What the run has not come to is left out."""
    summary = data.summary
    sections = [_cards(data), _comparison(data)]
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
        _card("saving", summary["saving"], _percent, "energy saved, measured", data.confidence("energy_j")),
        _card("slowdown", summary["slowdown"], _percent, "iteration time", data.confidence("iteration_time_s")),
        _card("predicted_saving", summary["predicted_saving"], _percent, "saving predicted by the plan"),
        _card("profiling_iterations", summary["profiling_iterations"], str, "iterations spent on profiling"),
        _card("switches_per_iteration", summary["switches_per_iteration"], _one_digit, "clock switches per iteration"),
        _card("late_switches", summary["late_switches"], "{:.0f}".format, "late clock switches in all"),
    ]
    missing = "" if summary["measured"] else "<p>No plan was in force for long enough to be measured.</p>"
    return f'<div class="cards">{"".join(cards)}</div>{missing}'


def _card(key: str, value: Any, form: Any, title: str, interval: Interval | None = None) -> str:
    shown = "–" if value is None else form(value)
    between = (
        f"<br>95 % confidence: {_percent(interval.low)} to {_percent(interval.high)}" if interval is not None else ""
    )
    return f"<div><b {_data(key, value)}>{shown}</b><span>{title}{between}</span></div>"


def _comparison(data: RunData) -> str:
    """Predicted against measured: the plan's fidelity."""
    rows = []
    for title, key, form in _FIGURES:
        figures = [data.summary[column] and data.summary[column][key] for column in _COLUMNS]
        cells = [
            f'<td class="number" {_data(f"{column}.{key}", value)}>{"–" if value is None else form.format(value)}</td>'
            for column, value in zip(_COLUMNS, figures, strict=True)
        ]
        _, predicted, measured = figures
        off = _percent(measured / predicted - 1.0) if predicted and measured else "–"
        rows.append(f'<tr><td>{title}</td>{"".join(cells)}<td class="number">{off}</td></tr>')
    heads = "".join(f'<th class="number">{name}</th>' for name in (*_COLUMNS, "measured against predicted"))
    return (
        "<h2>Before and after</h2><p>Medians of the steady iterations; energies of one data-parallel pipeline. "
        "The baseline ran at the highest clock, measured in this job.</p>"
        f'<div class="wide"><table><tr><th></th>{heads}</tr>{"".join(rows)}</table></div>'
    )


def _frontier(data: RunData) -> str:
    assert data.frontier is not None
    frontier, planned, summary = data.frontier, data.planned, data.summary
    others = other_planners(data.problem, planned["time_s"]) if data.problem is not None and planned else {}
    text = (
        f"<h2>Frontier</h2><p>T<sub>min</sub> {frontier['t_min_s']:.4f} s, T* {frontier['t_star_s']:.4f} s, "
        f"{frontier['breakpoints']} breakpoints. The line is the least energy that any plan of an iteration time can "
        "have; the points on it are plans that a GPU can run."
    )
    if planned:
        gap = planned["energy_j"] / planned["lower_bound_j"] - 1.0
        text += f" The plan that ran uses at most {100 * gap:.3f} % more than the least possible."
    shown = (
        ("chosen", "chosen plan, as predicted", summary["predicted"]),
        ("measured", "measured", summary["measured"]),
        ("baseline", "baseline, measured", summary["baseline"]),
        ("other", ", ".join(others) + " on the same profile and DAG", others),
    )
    legend = _legend((colour, title) for colour, title, there in shown if there)
    parts = [text, "</p>", _figure(frontier_chart(data, others), legend)]
    if others and summary["predicted"]:
        parts.append(_planner_table(data, others))
    if data.problem is not None and data.plan is not None:
        parts += ["<h3>Energy against clock switches</h3>", _switches(data.problem, data.plan)]
    return "".join(parts)


def _switches(problem: Problem, plan: Plan) -> str:
    """Draw what fewer clock switches would cost, where that does not hold up a job's end."""
    count = len(problem.dag.instructions)
    if count > _FEW_INSTRUCTIONS:
        return (
            f"<p>Left out: with {count} instructions in an iteration, plans with a bound on their switches take "
            f"minutes, and the report is made at the job's end. It is drawn up to {_FEW_INSTRUCTIONS}.</p>"
        )
    caption = (
        "Plans as fast as the one that ran (outlined), with a bound on the clock switches of each stage. The line "
        "takes clocks to change at once; a plan that allows for late ones lies above it."
    )
    return _figure(switches_chart(plans_by_switches(problem, plan), plan), caption)


def _planner_table(data: RunData, others: dict[str, Plan]) -> str:
    assert data.frontier is not None
    assert data.planned is not None
    highest_j = data.frontier["max_energy_j"]
    rows = [("Perseus, the plan that ran", data.planned["time_s"], data.planned["energy_j"], data.planned["switches"])]
    rows += [(title, plan.time_s, plan.energy_j, plan.switches) for title, plan in others.items()]
    cells = "".join(
        f'<tr><td>{title}</td><td class="number">{time_s:.4f} s</td><td class="number">{energy_j:.1f} J</td>'
        f'<td class="number">{_percent(1.0 - energy_j / highest_j)}</td><td class="number">{switches}</td></tr>'
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
    legend = _legend(
        [("forward", "forward"), ("backward", "backward"), ("wait", "waiting, transfers, reduction and optimizer")]
    )
    outline = "<br>The paler, the lower the clock; an outline marks a critical path; the dashed line is the end."
    return "".join(
        [
            "<h2>One iteration before and after</h2>",
            "<p>As the DAG of the observed trace runs it, with the measured times.</p>",
            "<h3>Before: highest clock</h3>",
            _figure(timeline_chart(before, "Timeline at the highest clock", longest_s), legend + outline),
            "<h3>After: the plan</h3>",
            _figure(timeline_chart(after, "Timeline of the plan", longest_s), legend + outline),
            "<h3>Power</h3>",
            _figure(
                power_chart([(before, "baseline"), (after, "chosen")], longest_s),
                _legend([("baseline", "before"), ("chosen", "after")]),
            ),
        ]
    )


def _history(data: RunData) -> str:
    figures = "".join(_figure(chart, "") for chart in history_charts(data))
    slow = [("straggler", "straggler")] if data.summary["stragglers"] else []
    legend = _legend([("measured", "measured"), ("chosen", "all ranks switch plans"), *slow])
    return f"<h2>The run</h2>{legend}{figures}" if data.iterations else ""


def _stragglers(data: RunData) -> str:
    rows = data.summary["stragglers"]
    if not rows:
        return ""
    names = [(name, name.replace("_", " ")) for name in rows[0]]
    heads = ("", *(f"straggler {number}" for number in range(1, len(rows) + 1)))
    return f"<h3>Stragglers</h3>{_table(heads, [[title, *(row.get(name) for row in rows)] for name, title in names])}"


def _clocks(data: RunData) -> str:
    """How the coordinator's GPU followed its requests: asking a driver for a clock is no proof of it."""
    ends = [event["clocks"] for event in data.events if event["event"] == "end" and "clocks" in event]
    if not ends:
        return ""
    rows = [(name.replace("_", " "), value) for name, value in ends[-1].items()]
    return f"<h3>How the coordinator's GPU followed its clock requests</h3>{_table(('', ''), rows)}"


def _curves(data: RunData) -> str:
    charts = curve_charts(data)
    if not charts:
        return ""
    legend = _legend([("forward", "forward"), ("backward", "backward")])
    pairs = "".join(
        f'<h3>Stage {stage}</h3><figure class="pair"><div>{energy}</div><div>{time}</div></figure>'
        for stage, energy, time in charts
    )
    return (
        "<h2>Profile</h2><p>One GPU's time and energy per instruction at every clock of the sweep, measured in the "
        f"live training; bars are 95 % confidence intervals.</p>{legend}{pairs}"
    )


def _events(data: RunData) -> str:
    rows = [
        [
            datetime.fromtimestamp(event["time"], timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
            event["iteration"],
            event["event"],
            ", ".join(
                f"{name} {_short(value)}" for name, value in event.items() if name not in ("time", "iteration", "event")
            ),
        ]
        for event in data.events
    ]
    return f"<h2>Events</h2>{_table(('UTC', 'iteration', 'event', ''), rows)}" if rows else ""


def _provenance(data: RunData) -> str:
    if not data.provenance:
        return ""
    gpu, versions = data.provenance["gpu"], data.provenance["versions"]
    return (
        f"<h2>Configuration and versions</h2>{_table(('GPU', ''), gpu.items())}"
        f"{_table(('software', ''), versions.items())}"
        f"<details open><summary>Configuration</summary><pre>"
        f"{escape(json.dumps(data.provenance['config'], indent=2))}</pre></details>"
    )


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        f'<span><i style="background:var(--{colour})"></i>{escape(text)}</span>' for colour, text in entries
    )
    return f'<div class="legend">{items}</div>'


def _table(heads: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(_short(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _short(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "; ".join(_short(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(one)}" for name, one in value.items())
    return str(value)


def _data(key: str, value: Any) -> str:
    """Return attributes that hold a figure in full, for those who read the page by program."""
    return f'data-key="{key}" data-value="{escape(json.dumps(value))}"'


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.2f} %"


def _one_digit(value: float) -> str:
    return f"{value:.1f}"
