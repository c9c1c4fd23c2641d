"""``perseus-ds set RUN_DIR objective=...``: change the objective of a running job, and show what all ranks answer."""

from __future__ import annotations

import argparse
import getpass
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

from perseus_ds.coordination.control import CONTROL_FILE, control_line, parse_time
from perseus_ds.files import read_text
from perseus_ds.frontier.objective_forms import parse_objective
from perseus_ds.messages import PerseusError
from perseus_ds.objective_text import ALLOWED
from perseus_ds.report.rundata import read_events
from perseus_ds.rundir import write_atomically

__all__ = ["add_parser", "run"]

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PERIOD_S = 0.2


def add_parser(subparsers: Any) -> None:
    """Add the ``set`` command."""
    parser = subparsers.add_parser("set", help="change the objective of a running job", description=__doc__)
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="run_dir of the configuration")
    parser.add_argument(
        "order", metavar="objective=OBJECTIVE", help=f"{ALLOWED}; or configured, which ends an earlier order"
    )
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument("--for", dest="lasting", metavar="TIME", help="ends by itself after this time, such as 30m")
    ending.add_argument("--until", metavar="TIME", help="ends by itself at this time (ISO 8601)")
    parser.add_argument(
        "--wait", type=float, default=120.0, metavar="SECONDS", help="wait so long for the answer (default: 120)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Write the order, wait for the ranks' answer, and print it.

    Raises:
        PerseusError: A wrong order, no running job, a file that cannot be written, or no answer in time.
    """
    order = _order(arguments.order)
    until_s = _end_s(arguments)
    before = _running(arguments.run_dir)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    _write(arguments.run_dir / CONTROL_FILE, order and control_line(order, until_s, by))
    answer = _answer(arguments.run_dir, before, arguments.wait)
    if arguments.json:
        print(json.dumps(answer))
    else:
        print(_told(answer))
    return 0


def _order(text: str) -> str | None:
    """Return the control line's first words; None for the configured objective."""
    name, _, objective = text.partition("=")
    if name != "objective":
        raise PerseusError("plan-bad-value", name="order", value=repr(text), allowed="objective=OBJECTIVE")
    return None if objective == "configured" else f"objective {parse_objective(objective)}"


def _end_s(arguments: argparse.Namespace) -> float | None:
    now_s = time.time()
    try:
        if arguments.lasting is not None:
            number, unit = re.fullmatch(r"([\d.]+)([smh])", arguments.lasting).groups()  # pyright: ignore
            return now_s + float(number) * _UNITS_S[unit]
        end_s = parse_time(arguments.until) if arguments.until is not None else None
    except (AttributeError, ValueError):
        wrong = arguments.lasting or arguments.until
        allowed = "30s, 30m, 2h, or an ISO 8601 time"
        raise PerseusError("plan-bad-value", name="end of the order", value=wrong, allowed=allowed) from None
    if end_s is not None and end_s <= now_s:
        raise PerseusError("plan-bad-value", name="--until", value=arguments.until, allowed="a time to come")
    return end_s


def _running(run_dir: Path) -> int:
    """Return how many events a running job has had.

    Raises:
        PerseusError: There is none.
    """
    events = read_events(run_dir)
    if not events:
        detail = "it has no events yet" if run_dir.is_dir() else "no such directory"
        raise PerseusError("run-missing", path=run_dir, detail=detail)
    if events[-1]["event"] == "end":
        raise PerseusError("run-over", path=run_dir)
    return len(events)


def _write(file: Path, line: str | None) -> None:
    """Replace the lines about the objective by this one; others stay."""
    try:
        lines = read_text(file).splitlines() if file.exists() else []
        kept = [one for one in lines if one.split()[:1] != ["objective"]]
        write_atomically(file, "".join(f"{one}\n" for one in [*kept, *([line] if line else [])]))
    except (OSError, UnicodeDecodeError) as error:
        raise PerseusError("order-not-written", file=file, detail=error) from error


def _answer(run_dir: Path, before: int, wait_s: float) -> dict[str, Any]:
    """Return the event in which the ranks have taken the order."""
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        for event in read_events(run_dir)[before:]:
            if event["event"] == "objective":
                return event
            if event["event"] == "end":
                raise PerseusError("run-over", path=run_dir)
        time.sleep(_PERIOD_S)
    raise PerseusError("order-unanswered", path=run_dir, seconds=wait_s)


def _told(answer: dict[str, Any]) -> str:
    if (time_s := answer["time_s"]) is None:
        return f"{answer['objective']}: taken; it holds with the first plans"
    change = 100 * (time_s / answer["before_s"] - 1)
    met = "" if answer["met"] else "; this is the closest that the job can do"
    if answer["at_floor"]:
        met = f"; the job cannot draw less than {answer['power_w']:.0f} W"
    return (
        f"{answer['objective']}: from iteration {answer['iteration']} on {time_s:.4g} s ({change:+.1f} %), "
        f"{answer['power_w']:.0f} W predicted for the job{met}"
    )
