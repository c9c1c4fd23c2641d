"""The page ``docs/reliability.md``: what faults do to a training under Perseus, and how long it takes to recover.

As a plugin of pytest (``-p reliability_page``) it keeps what the tests of faults tell in ``build/reliability.json``.
As a program it writes the page from that.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
FRAMEWORKS = {"deepspeed": "DeepSpeed", "megatron": "Megatron-Core"}
_kept: dict[str, "Result"] = {}


class Result(NamedTuple):
    """What one test of a fault has found.

    Attributes:
        fault: What went wrong.
        happens: What follows, as the test checks it.
        framework: Key of ``FRAMEWORKS``.
        recovered: How long it took, as the test tells it.
        outcome: ``passed``, ``failed`` or ``skipped``.
        day: When it ran, in ISO form.
    """

    fault: str
    happens: str
    framework: str
    recovered: str
    outcome: str
    day: str


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep the outcome of a test of a fault; of one that is tried again, the last."""
    report = yield
    fault = item.get_closest_marker("fault")
    if fault is not None and (report.when == "call" or not report.passed):
        told = dict(item.user_properties).get("recovered", "")
        parameters = item.callspec.params  # type: ignore[attr-defined]
        today = date.today().isoformat()
        _kept[item.nodeid] = Result(*fault.args, parameters["framework"], told, report.outcome, today)
    return report


def pytest_sessionfinish() -> None:
    """Keep what has run beside what has not run now."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{KEPT}.lock"):  # workers end at any time
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        KEPT.write_text(json.dumps({**kept, **_kept}, indent=1))


def page(results: Sequence[Result]) -> str:
    """Return the page.

    Raises:
        ValueError: A test has not passed: there is nothing to publish.
    """
    if others := [f"{one.fault} ({one.framework}): {one.outcome}" for one in results if one.outcome != "passed"]:
        raise ValueError(f"not passed: {others}")
    days = sorted({one.day for one in results})
    lines = [
        "# Reliability",
        "",
        "`make reliability` writes this page from its tests. Real processes train a small pipeline with the real",
        "frameworks over gloo, on simulated GPUs. In each test one thing goes wrong. Where ranks of one host train on,",
        "their losses are compared with those without Perseus, bit by bit.",
        "",
        f"It ran {'on' if len(days) == 1 else 'from'} {' to '.join(dict.fromkeys((days[0], days[-1])))}, on two cores.",
        "Iterations last about 0.15 s. `bus_timeout_s` is 2, or 10 where a launcher starts the ranks. Times count from",
        "the end of the fault. Each test runs once to write this page, so a busier host needs longer.",
        "",
        *_table(results),
    ]
    return "\n".join(lines) + "\n"


def _table(results: Sequence[Result]) -> Iterator[str]:
    yield "| what goes wrong | framework | what happens | time to recover |"
    yield "| --- | --- | --- | --- |"
    for one in sorted(results, key=lambda one: one.framework):  # keeps the order of the tests
        yield f"| {one.fault} | {FRAMEWORKS[one.framework]} | {one.happens} | {one.recovered} |"


def rows(text: str) -> set[tuple[str, str]]:
    """Return fault and framework of every row of the page."""
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {(row[0].removeprefix("| "), row[1]) for row in cells if row[1] in FRAMEWORKS.values()}


if __name__ == "__main__":
    PAGE.write_text(page([Result(*one) for one in json.loads(KEPT.read_text()).values()]))
