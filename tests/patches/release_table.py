"""The page ``docs/framework-releases.md``: what of each framework release has run, mode by mode.

As a plugin of pytest (``-p release_table``) it keeps what the hook tests find on one release in ``build/releases``. As
a program it writes the page from all that is kept there.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "releases"
PAGE = ROOT / "docs" / "framework-releases.md"
_kept: dict[str, "Result"] = {}


class Result(NamedTuple):
    """What one test has found on one release.

    Attributes:
        framework: Name of the test's file: ``test_megatron_hooks``.
        release: Version of the framework.
        mode: What was tried, in the words of the test's parameter, else of the test.
        outcome: ``passed``, ``failed`` or ``skipped``.
        detail: Why it was skipped, or the line that refuses the mode.
        day: When it ran, in ISO form.
    """

    framework: str
    release: str
    mode: str
    outcome: str
    detail: str
    day: str


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep the outcome of a test on one release; of one that is tried again, the last."""
    report = yield
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if report.when == "call" or not report.passed:
        detail = str(report.longrepr[-1]) if report.skipped else dict(item.user_properties).get("refused", "")
        words = item.originalname.removeprefix("test_").replace("_", " ")
        mode = parameters.get("case") or parameters.get("mode") or words
        today = date.today().isoformat()
        found = Result(item.path.stem, parameters["ranks"], mode, report.outcome, detail, today)
        _kept[item.nodeid] = found
    return report


def pytest_sessionfinish() -> None:
    """Replace what is kept of the releases that have run."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for framework, release in {(one.framework, one.release) for one in _kept.values()}:
        own = [one for one in _kept.values() if (one.framework, one.release) == (framework, release)]
        (KEPT / f"{framework}-{release}.json").write_text(json.dumps(own))


def page(results: Sequence[Result]) -> str:
    """Return the page.

    Raises:
        ValueError: A test has failed: there is nothing to publish.
    """
    if failed := [f"{one.release}: {one.mode}" for one in results if one.outcome == "failed"]:
        raise ValueError(f"failed: {failed}")
    days = sorted({one.day for one in results})
    lines = [
        "# Releases and modes",
        "",
        "`make test-matrix` writes this page from what has run. The real framework trains on CPU over gloo, with its",
        "own schedules. Megatron-Core runs on four ranks, DeepSpeed on two. *Works* says that the hooks see the",
        "schedule's instructions and transfers, and that gradients are bit-identical with and without them.",
        "",
        f"It ran from {days[0]} to {days[-1]}." if len(days) > 1 else f"It ran on {days[0]}.",
    ]
    for name, framework in (("Megatron-Core", "test_megatron_hooks"), ("DeepSpeed", "test_deepspeed_hooks")):
        own = [one for one in results if one.framework == framework]
        lines += ["", f"## {name}", "", *_table(own), *_notes(own)]
    return "\n".join(lines) + "\n"


def _table(results: Sequence[Result]) -> Iterator[str]:
    releases = sorted({one.release for one in results}, key=Version)
    yield f"| | {' | '.join(releases)} |"
    yield f"| --- |{' --- |' * len(releases)}"
    for mode in dict.fromkeys(one.mode for one in results):
        cells = [_cell([one for one in results if (one.mode, one.release) == (mode, release)]) for release in releases]
        yield f"| {mode} | {' | '.join(cells)} |"


def _cell(results: Sequence[Result]) -> str:
    if not results or all(one.outcome == "skipped" for one in results):
        return "–"
    return "refused" if any(one.detail and one.outcome == "passed" for one in results) else "works"


def _notes(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines that refuse modes, and why something has not run."""
    refused = {
        one.mode: one.detail.partition("; ")[0].replace(one.release, "…")
        for one in results
        if one.detail and one.outcome == "passed"
    }
    if refused:
        yield from ("", "A refused mode ends the job at its first iteration with one line:", "")
        yield from (f"- {mode}: `{line}`" for mode, line in refused.items())
    skipped = dict.fromkeys(one.detail.removeprefix("Skipped: ") for one in results if one.outcome == "skipped")
    if skipped:
        yield from ("", "What has not run (–):", "")
        yield from (f"- {reason}" for reason in skipped)


def write_page() -> None:
    """Write the page from all that is kept."""
    kept = sorted(KEPT.glob("*.json"))
    PAGE.write_text(page([Result(*one) for path in kept for one in json.loads(path.read_text())]))


if __name__ == "__main__":
    write_page()
