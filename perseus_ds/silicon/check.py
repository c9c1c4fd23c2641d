"""The whole check: all experiments one after the other, within nine minutes, on a GPU or in virtual time."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perseus_ds.messages import one_line
from perseus_ds.silicon.attribution import attribution
from perseus_ds.silicon.capture import capture
from perseus_ds.silicon.counter import counter
from perseus_ds.silicon.device_time import TimeWatch
from perseus_ds.silicon.killed import killed
from perseus_ds.silicon.lab import Lab
from perseus_ds.silicon.outcome import Outcome
from perseus_ds.silicon.overhead import overhead
from perseus_ds.silicon.page import page
from perseus_ds.silicon.position import position
from perseus_ds.silicon.power_limit import power_limit
from perseus_ds.silicon.reading_cost import reading_cost
from perseus_ds.silicon.saving import saving
from perseus_ds.silicon.two_stages import two_stages
from perseus_ds.silicon.waiting_power import waiting_power
from perseus_ds.silicon.whole_loop import whole_loop

__all__ = ["EXPERIMENTS", "TIME", "check", "write"]

EXPERIMENTS: dict[str, Callable[[Lab], Outcome]] = {
    "position": position,
    "whole loop": whole_loop,
    "counter": counter,
    "cost of reading": reading_cost,
    "attribution": attribution,
    "saving": saving,
    "waiting power": waiting_power,
    "power limit": power_limit,
    "two stages": two_stages,
    "overhead": overhead,
    "graph capture": capture,
    "killed": killed,
}
"""All experiments but the one that runs beside them, by name."""

TIME = "time"
"""The experiment that runs beside all others."""

_BUDGET_S = 540.0
_FOR_TIME_S = 10.0


def check(make_lab: Callable[[], Lab], names: Sequence[str], tell: Callable[[str], None]) -> dict[str, Any]:
    """Run experiments; one that raises has failed, and the others still run.

    Args:
        make_lab: Makes a lab; each experiment has its own.
        names: Experiments, of ``EXPERIMENTS`` or ``TIME``.
        tell: Receives a line for people after each.

    Returns:
        The results as in ``gpu-check.json``.
    """
    begin_s = time.monotonic()
    lab = make_lab()
    watch = TimeWatch(lab) if TIME in names else None
    outcomes = []
    for name in (name for name in EXPERIMENTS if name in names):
        if watch is not None:
            watch.look()
        if time.monotonic() - begin_s > _BUDGET_S - _FOR_TIME_S:
            outcomes.append(Outcome(name, False, {}, "left out: the nine minutes are over"))
            continue
        outcomes.append(_tried(name, make_lab, tell))
    if watch is not None:
        outcomes.append(_caught(TIME, watch.outcome))
        tell(_line(outcomes[-1]))
    found = {
        "virtual": lab.virtual,
        "gpu": lab.name,
        "driver": lab.driver_version,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "experiments": [outcome.to_json() for outcome in outcomes],
    }
    lab.close()
    return found


def _tried(name: str, make_lab: Callable[[], Lab], tell: Callable[[str], None]) -> Outcome:
    """Run one experiment in a lab of its own."""

    def run() -> Outcome:
        with contextlib.closing(make_lab()) as lab:
            return EXPERIMENTS[name](lab)

    begin_s = time.monotonic()
    outcome = _caught(name, run)
    tell(f"{_line(outcome)} ({time.monotonic() - begin_s:.0f} s)")
    return outcome


def _caught(name: str, run: Callable[[], Outcome]) -> Outcome:
    try:
        return run()
    except Exception as error:
        return Outcome(name, False, {}, one_line(error))


def _line(outcome: Outcome) -> str:
    return f"{outcome.name}: {'passed' if outcome.passed else f'FAILED: {outcome.why}'}"


def write(found: dict[str, Any], directory: Path) -> None:
    """Write ``gpu-check.json`` and ``silicon.md``."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "gpu-check.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (directory / "silicon.md").write_text(page(found), encoding="utf-8")
