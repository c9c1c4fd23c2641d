"""``perseus-ds status RUN_DIR``: show the state of a running job, from the files it has written so far."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from perseus_ds.messages import PerseusError
from perseus_ds.report.closing import closing_table
from perseus_ds.report.rundata import read_events, read_json, telling_of_damage

__all__ = ["add_parser", "run"]

_STATES = {"paused": "waiting to rejoin", "rejoined": "running", "ended_for_good": "ended for good", "end": "over"}


def add_parser(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("status", help="show the state of a running job", description=__doc__)
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="run_dir of the configuration")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Print phase, iteration, plan, stragglers and the figures so far.

    Raises:
        PerseusError: The run directory is missing, or one of its files is damaged.
    """
    events = read_events(arguments.run_dir)
    if not events:
        detail = "it has no events yet" if arguments.run_dir.is_dir() else "no such directory"
        raise PerseusError("run-missing", path=arguments.run_dir, detail=detail)
    with telling_of_damage(arguments.run_dir):
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

    start, phase, switch = events[0], latest("phase"), latest("switch")
    ordered, keepers = latest("objective"), latest("keepers")
    state, because = _state(events)
    return {
        "framework": start["framework"],
        "gpus": "simulated GPUs" if start["simulated"] else "real GPUs",
        "state": state,
        "because": because,
        "clock_keepers_missing": keepers["missing"] if keepers else 0,
        "phase": phase and phase["phase"],
        "progress": solving["progress"] if solving and phase and phase["phase"] == "solving" else None,
        "iteration": max([event["iteration"] for event in events] + [row["iteration"] for row in iterations[-1:]]),
        "objective": ordered and f"{ordered['objective']} since iteration {ordered['iteration']}, by {ordered['by']}",
        "plan_s": switch and [round(plan["time_s"], 4) for plan in switch["plans"]],
        "stragglers_now": sum(one["recovered_iteration"] is None for one in summary["stragglers"]) if summary else 0,
        "last_event_s_ago": round(time.time() - events[-1]["time"], 1),
        "summary": summary,
    }


def _state(events: list[dict[str, Any]]) -> tuple[str, str | None]:
    """Return what the job is at, and why where Perseus is not at work."""
    last = next((event for event in reversed(events) if event["event"] in _STATES), None)
    if last is None:
        return "running", None
    final = [event for event in events if event["event"] == "ended_for_good"]
    failed = final[-1] if final else last
    cause = failed.get("cause")
    return _STATES[failed["event"]], cause and f"{cause}, iteration {failed['iteration']}"
