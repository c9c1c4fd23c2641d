"""The control file: orders of operators and power managers to a running job.

``run_dir/control`` holds one order per line, such as ``objective power=12kW`` or ``straggler PIPELINE SLOWDOWN``. An
order holds as long as its line stays, or to the time after ``until``; a name may follow ``by``. A change counts once
two readings agree. A separate thread reads the file: a hanging file system must not delay the training.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from perseus_ds.console import log
from perseus_ds.coordination.orders import Order, parse_order
from perseus_ds.files import read_text
from perseus_ds.messages import one_line, user_message

__all__ = ["CONTROL_FILE", "ControlFile", "control_line", "parse_control", "parse_time"]

CONTROL_FILE = "control"
"""Its name in the run directory."""

_PERIOD_S = 0.25

Wanted = dict[tuple[str, int], Order]
"""The order in force by what it is about."""


class ControlFile:
    """Watches the file.

    Args:
        path: The file; it need not exist.
        pipelines: Number of pipelines.
    """

    def __init__(self, path: Path, pipelines: int) -> None:
        self._path, self._pipelines = path, pipelines
        self._wanted: Wanted = {}
        self._told: Wanted = {}
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="perseus_ds-control", daemon=True).start()

    def next_order(self) -> Order | None:
        """Return the next new order, or the order that revokes one removed from the file."""
        wanted = self._wanted
        for about, order in wanted.items():
            if self._told.get(about, order.taken_back()) != order:
                self._told[about] = order
                return order
        for about in [about for about in self._told if about not in wanted]:
            order = self._told.pop(about)
            if order != order.taken_back():
                return order.taken_back()
        return None

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        seen = before = refused = ""
        while not self._closed.wait(_PERIOD_S):
            try:
                text, refused = read_text(self._path, guarded=True), ""
            except FileNotFoundError:
                text, refused = "", ""
            except (OSError, UnicodeDecodeError) as error:
                why = one_line(error)
                if why != refused:
                    log.warning("%s", user_message("control-refused", file=self._path, detail=why))
                text, refused = seen, why
            if text != before:  # half written, perhaps: an editor empties a file before it writes
                before, text = text, seen
            self._wanted, wrong = parse_control(text, self._pipelines, time.time())
            for number, line, why in wrong if text != seen else ():
                log.warning("%s", user_message("control-line", file=self._path, row=number, value=line, detail=why))
            seen = text


def parse_control(text: str, pipelines: int, now_s: float) -> tuple[Wanted, list[tuple[int, str, str]]]:
    """Parse a control file.

    Args:
        text: Its content; empty lines and lines that begin with ``#`` are ignored.
        pipelines: Number of pipelines.
        now_s: The time now, in seconds since the epoch.

    Returns:
        The orders by what they are about, and number, text and reason of each line that is none. Of two lines that
        contradict each other the first holds.
    """
    wanted: Wanted = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            order = _parse_line(line, pipelines, now_s)
            if wanted.setdefault(order.about, order) != order:
                raise ValueError("it contradicts a line above it")
        except ValueError as error:
            wrong.append((number, line, str(error)))
    return wanted, wrong


def control_line(order: str, until_s: float | None, by: str) -> str:
    """Return a line of the file.

    Args:
        order: The kind, and its words.
        until_s: Seconds since the epoch at which the order ends by itself; None: never.
        by: Who gives the order.
    """
    until = f" until {datetime.fromtimestamp(until_s).astimezone().isoformat(timespec='seconds')}" if until_s else ""
    return f"{order}{until} by {by}"


def parse_time(text: str) -> float:
    """Return seconds since the epoch for an ISO 8601 time; without a zone it is local.

    Raises:
        ValueError: It is none.
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _parse_line(line: str, pipelines: int, now_s: float) -> Order:
    """Raise ValueError if the line is no order, or over."""
    rest, _, by = line.partition(" by ")
    words, _, until = rest.partition(" until ")
    if until and parse_time(until.strip()) <= now_s:
        raise ValueError("its time is over")
    return replace(parse_order(words, pipelines), by=by.strip() or "the control file")
