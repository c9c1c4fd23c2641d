"""The page ``docs/silicon.md``, from the results in ``gpu-check.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["ABOUT", "page"]

ABOUT = {
    "position": "Clocks are asked for where the device is: no earlier than planned, in order, within 1 ms (p99).",
    "whole loop": "Kernels with a clock of their own are profiled, planned and clocked: within 1 % of the prediction.",
    "counter": "Steps of load from 10 ms to 2 s show what of the past the energy counter tells.",
    "cost of reading": "Each reading of NVML, alone and among eight processes.",
    "attribution": "Each load's power in a mix against the same alone: within 2 %, and the interval covers it.",
    "saving": "A refreshed baseline, read rarely, tells the saving that all readings tell: within half a point.",
    "waiting power": "What spinning on 1 to 32 multiprocessors draws, and an idle context.",
    "power limit": "A minute of matrix work and bursts after idling look like no straggler and no drift.",
    "two stages": "Stalls of 50 ms land in the waits (± 0.2 ms) of three programs; instructions stay (± 1 %).",
    "overhead": "A rank that observes adds less than 0.2 % to a step, no wait, no memory, and no other loss.",
    "graph capture": "Graphs captured while the follower waits for events stay whole.",
    "killed": "After SIGKILL and after an exception the keeper is gone within 1 s, and no context is left.",
    "time": "The timer's device time against the host's, over five minutes: below 100 µs, no drift.",
}
"""What each experiment is about, by name."""

_VIRTUAL = """!!! warning "Virtual"
    Nothing on this page was measured on silicon yet. All figures are virtual: they show that the experiments run and
    can fail, and say nothing of a real GPU."""


def page(found: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        found: Results of ``check``.
    """
    return "\n".join(_lines(found)).rstrip() + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield "# One GPU, by reading only"
    yield ""
    yield "`make gpu-check` runs these experiments on one GPU, in nine minutes at most. It sets no clock: in the check"
    yield "and its child processes, every NVML call that may set or reset anything raises. Without a GPU the same"
    yield "experiments run on a virtual one, in virtual time. `python -m perseus_ds.silicon position` runs one alone."
    yield "This page is generated from `gpu-check.json`."
    yield ""
    if found["virtual"]:
        yield _VIRTUAL
        yield ""
    yield "| | |"
    yield "| --- | --- |"
    yield f"| GPU | {found['gpu']} |"
    yield f"| driver | {found['driver']} |"
    yield f"| date | {found['date']} |"
    passed = [one["passed"] for one in found["experiments"]]
    yield f"| passed | {sum(passed)} of {len(passed)} |"
    yield ""
    for one in found["experiments"]:
        yield from _experiment(one)


def _experiment(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {one['name'].capitalize()}"
    yield ""
    yield ABOUT[one["name"]]
    yield ""
    yield "**Passed.**" if one["passed"] else f"**Failed:** {one['why']}"
    yield ""
    if one["figures"]:
        yield "| figure | value |"
        yield "| --- | --- |"
        for name, value in one["figures"].items():
            shown = value if isinstance(value, str) else f"{value:.4g}"
            yield f"| {name.replace('_', ' ')} | {shown} |"
        yield ""
