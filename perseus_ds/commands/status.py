"""``perseus-ds status RUN_DIR``: what a running job does, from what it has written so far."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from perseus_ds.messages import PerseusError
from perseus_ds.report.closing import closing_table
from perseus_ds.report.rundata import read_events, read_json

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("status", help="show what a running job does", description=__doc__)
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="run_dir of the configuration")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Print phase, iteration, plan, stragglers and the figures so far.

    Raises:
        PerseusError: There is no run directory, or a file in it is damaged.
    """
    events = read_events(arguments.run_dir)
    if not events:
        detail = "it has no events yet" if arguments.run_dir.is_dir() else "no such directory"
        raise PerseusError("run-missing", path=arguments.run_dir, detail=detail)
    summary = read_json(arguments.run_dir / "summary.json")
    iterations = read_json(arguments.run_dir / "iterations.json") or []
    status = _status(events, summary, iterations, read_json(arguments.run_dir / "progress.json"))
    if arguments.json:
        print(json.dumps(status, indent=1))
        return 0
    for name, value in status.items():
        if name != "summary":
            print(f"{name.replace('_', ' '):<20} {'-' if value is None else value}")
    if summary is not None:
        print(closing_table(summary))
    return 0


def _status(
    events: list[dict[str, Any]], summary: dict[str, Any] | None, iterations: list[Any], solving: dict[str, Any] | None
) -> dict[str, Any]:
    def latest(kind: str) -> dict[str, Any] | None:
        return next((event for event in reversed(events) if event["event"] == kind), None)

    start, phase, switch, end = events[0], latest("phase"), latest("switch"), latest("end")
    return {
        "framework": start["framework"],
        "gpus": "simulated GPUs" if start["simulated"] else "real GPUs",
        "state": "over" if end else "running",
        "phase": phase and phase["phase"],
        "progress": solving["progress"] if solving and phase and phase["phase"] == "solving" else None,
        "iteration": max([event["iteration"] for event in events] + [row["iteration"] for row in iterations[-1:]]),
        "plan_s": switch and [round(plan["time_s"], 4) for plan in switch["plans"]],
        "stragglers_now": sum(one["recovered_iteration"] is None for one in summary["stragglers"]) if summary else 0,
        "last_event_s_ago": round(time.time() - events[-1]["time"], 1),
        "summary": summary,
    }
