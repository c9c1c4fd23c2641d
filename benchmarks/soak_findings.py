"""What a soaked run has shown, judged."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from soak_plan import SETTLED, SLOW, Disturbance, is_quiet

from perseus_ds.coordination.refresh import MEASURED
from perseus_ds.report.rundata import read_events

__all__ = ["Finding", "find"]

MEMORY_KB = 4096  # as much may a process grow between the second and the last quarter, more than without Perseus
DESCRIPTORS = THREADS = 2
BYTES_PER_ITERATION = 500
SAVING = 0.01
_DETECTED = 10  # iterations from the end of a slowdown until all that follows from it is over
_REPLANNED = 60  # the same for a drift


@dataclass(frozen=True)
class Finding:
    """One line of the table.

    Attributes:
        what: Its name.
        found: The value.
        wanted: What it should be; empty: nothing is expected.
        good: Whether it is so; None: nothing is expected.
    """

    what: str
    found: str
    wanted: str = ""
    good: bool | None = None


def find(directory: Path, plan: Sequence[Disturbance], energies_j: dict[int, float], done: int) -> list[Finding]:
    """Judge a run.

    Args:
        directory: Of the run.
        plan: Its disturbances.
        energies_j: True energy of its iterations.
        done: Number of its iterations.
    """
    events = list(read_events(directory / "run"))
    plan = [one for one in plan if one.begin < done]
    return [
        *_happened(plan, events),
        _losses(directory),
        *_alarms(plan, events),
        *_saving(plan, events, energies_j),
        *_flat(directory),
        *_files(directory, done),
    ]


def _happened(plan: Sequence[Disturbance], events: list[dict]) -> Iterator[Finding]:
    counts = Counter(one.kind for one in plan)
    yield Finding("disturbances", ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items())) or "none")
    told = Counter(event["event"] for event in events)
    yield Finding("events", ", ".join(f"{count} x {kind}" for kind, count in sorted(told.items())))
    missed = counts["absence"] - told["rejoined"]
    if counts["absence"]:
        yield Finding("absences survived", f"{told['rejoined']} of {counts['absence']}", "all", missed <= 0)
    yield Finding("ended for good", str(told["ended_for_good"]), "0", not told["ended_for_good"])


def _losses(directory: Path) -> Finding:
    with_, without = ((directory / f"losses-{name}.txt").read_text().split() for name in ("with", "without"))
    same = sum(one == other for one, other in zip(with_, without, strict=False))
    return Finding("equal losses", f"{same:,} of {len(with_):,}", "all", with_ == without and bool(with_))


def _alarms(plan: Sequence[Disturbance], events: list[dict]) -> Iterator[Finding]:
    slow = [one for one in plan if one.kind in SLOW]

    def real(event: dict, after: int) -> bool:
        return any(one.begin <= event["iteration"] < one.end + after for one in slow)

    found = [event for event in events if event["event"] == "straggler"]
    false = [event["iteration"] for event in found if not real(event, _DETECTED)]
    after = [min((e["iteration"] - one.begin for e in found if real_one(one, e)), default=None) for one in slow]
    noticed = sorted(one for one in after if one is not None)
    yield Finding("false stragglers", f"{len(false)} {false[:10] or ''}", "0", not false)
    if slow:
        # Each relapse of a stage doubles its onset: a short one may be over before.
        spread = f", after {noticed[0]} to {noticed[-1]} iterations" if noticed else ""
        yield Finding("stragglers noticed", f"{len(noticed)} of {len(slow)}{spread}")
    drifts = [event["iteration"] for event in events if event["event"] == "drift" and not real(event, _REPLANNED)]
    yield Finding("false drifts", f"{len(drifts)} {drifts[:10] or ''}", "0", not drifts)
    guards = [event["iteration"] for event in events if event["event"] == "guard" and event["caution"]]
    yield Finding("clocks raised by the guard", f"{len(guards)} {guards[:10] or ''}")


def real_one(one: Disturbance, event: dict) -> bool:
    """Whether an event tells of a disturbance."""
    return event["stage"] == one.rank and one.begin <= event["iteration"] < one.end + _DETECTED


def _saving(plan: Sequence[Disturbance], events: list[dict], energies_j: dict[int, float]) -> Iterator[Finding]:
    """Compare the true saving early and late: each refreshed baseline against the plan's quiet iterations around it."""
    savings = []
    for first in (event["iteration"] for event in events if event["event"] == "baseline"):
        base = [energies_j[n] for n in range(first, first + MEASURED) if n in energies_j]
        around = [*range(first - 9, first - 1), *range(first + MEASURED + 1, first + MEASURED + 9)]
        quiet = [energies_j[n] for n in around if n in energies_j and is_quiet(plan, n)]
        if base and quiet:
            savings.append(1.0 - fmean(quiet) / fmean(base))
    if len(savings) < 2:
        yield Finding("true saving", f"{len(savings)} refreshed baselines to tell it from")
        return
    some = max(1, len(savings) // 3)
    first, last = median(savings[:some]), median(savings[-some:])
    yield Finding(
        "true saving beside refreshed baselines",
        f"{100 * first:.2f} % at the start, {100 * last:.2f} % at the end",
        f"equal within {100 * SAVING:.0f} points, above 0",
        abs(first - last) < SAVING and last > 0.0,
    )


def _flat(directory: Path) -> Iterator[Finding]:
    """Compare what the processes use in the second quarter with the last one."""
    usage = {name: _usage(directory, name) for name in ("with", "without")}
    for role, limit in (("trainer", MEMORY_KB), ("keeper", MEMORY_KB), ("worker", MEMORY_KB)):
        for (_, rank), columns in sorted(one for one in usage["with"].items() if one[0][0] == role):
            plain = usage["without"].get((role, rank))
            (before, after) = columns["memory_kb"]
            own = after - before - (max(0, plain["memory_kb"][1] - plain["memory_kb"][0]) if plain else 0)
            yield Finding(
                f"memory, {role} of rank {rank}",
                f"{before / 1024:.1f}, then {after / 1024:.1f} MiB"
                + (
                    f" (without Perseus {plain['memory_kb'][0] / 1024:.1f}, {plain['memory_kb'][1] / 1024:.1f})"
                    if plain
                    else ""
                ),
                f"grows less than {limit / 1024:.0f} MiB",
                own < limit,
            )
            for column, most in (("descriptors", DESCRIPTORS), ("threads", THREADS)):
                before, after = columns[column]
                text = f"{before:.0f}, then {after:.0f}"
                yield Finding(f"{column}, {role} of rank {rank}", text, f"at most {most} more", after - before <= most)


def _usage(directory: Path, name: str) -> dict[tuple[str, int], dict[str, tuple[float, float]]]:
    """Return what the second and the last quarter use, by role and rank, and by column.

    Of memory the least counts, which a leak raises: an allocator gives back what a task needed when it pleases.
    """
    rows: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    for file in directory.glob(f"used-{name}-*.csv"):
        with file.open() as lines:
            for row in csv.DictReader(lines):
                if int(row["iteration"]) >= SETTLED or name == "without":
                    rows[row["role"], int(file.stem.rpartition("-")[2])].append(row)
    found = {}
    for key, samples in rows.items():
        quarter = max(1, len(samples) // 4)
        parts = (samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:])
        found[key] = {
            column: tuple(typical(float(row[column]) for row in part) for part in parts)
            for column, typical in (("memory_kb", min), ("descriptors", median), ("threads", median))
        }
    return found


def _files(directory: Path, done: int) -> Iterator[Finding]:
    files = [file for file in (directory / "run").iterdir() if file.is_file()]
    sizes = {file.name: file.stat().st_size for file in files}
    total = sum(sizes.values())
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    yield Finding(
        "run directory",
        f"{total / 1e6:.2f} MB, {len(files)} files; "
        + ", ".join(f"{name} {sizes[name] / 1e3:.0f} kB" for name in largest),
    )
    growing = sum(sizes.get(name, 0) for name in ("events.jsonl", "energy.csv"))
    yield Finding(
        "of these, grows with every iteration",
        f"{growing / done:.0f} bytes",
        f"< {BYTES_PER_ITERATION}",
        growing / done < BYTES_PER_ITERATION,
    )
