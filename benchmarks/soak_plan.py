"""What disturbs a soaked job, and when: drawn from a seed, so that a run can be repeated."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "BUS_TIMEOUT_S",
    "SETTLED",
    "SLOW",
    "Disturbance",
    "is_quiet",
    "make_plan",
    "make_rare_plan",
    "read_plan",
    "write_plan",
]

BUS_TIMEOUT_S = 4.0
SETTLED = 150  # the first plan is in force by then: the training waits for it
_GAP = (30, 70)  # quiet iterations between two disturbances
_AFTERMATH = 25  # iterations after a disturbance in which the job may still answer it
_WEIGHTS = {"straggler": 6, "evaluation": 4, "checkpoint": 2, "pause": 3, "absence": 1, "keeper": 2, "order": 4}
SLOW = ("straggler", "ceiling")
_SLOWDOWNS, _CEILING = (1.1, 1.3, 1.5), 0.7
_RARELY = 14  # iterations of each
_OBJECTIVES = ("slowdown=1.1", "slowdown=1.3", "min_energy", "min_time")


@dataclass(frozen=True)
class Disturbance:
    """Something that happens to the job.

    Attributes:
        kind: ``straggler``, ``evaluation``, ``checkpoint``, ``pause`` (short), ``absence`` (longer than the bus waits),
            ``keeper`` (killed), ``order``, or ``ceiling`` (a straggler whose clock is held down).
        begin: First iteration.
        end: First iteration without it.
        rank: Whom it concerns.
        value: Slowdown, share of the highest clock, number of evaluations, or seconds.
        text: The objective that is ordered.
    """

    kind: str
    begin: int
    end: int
    rank: int = 0
    value: float = 0.0
    text: str = ""


def make_plan(iterations: int, ranks: int, seed: int) -> list[Disturbance]:
    """Draw the disturbances of a run, in order, none overlapping another."""
    return list(_drawn(random.Random(seed), iterations, ranks))


def make_rare_plan(iterations: int, ranks: int) -> list[Disturbance]:
    """Return stragglers only, far apart: three slowdowns, then a ceiling, each on the last stage."""
    found = [("straggler", slowdown) for slowdown in _SLOWDOWNS] + [("ceiling", _CEILING)]
    apart = iterations // (len(found) + 1)
    return [
        Disturbance(kind, number * apart, number * apart + _RARELY, ranks - 1, value)
        for number, (kind, value) in enumerate(found, start=1)
    ]


def _drawn(draw: random.Random, iterations: int, ranks: int) -> Iterator[Disturbance]:
    at, kinds = SETTLED, [*_WEIGHTS]
    draw.shuffle(kinds)
    while True:
        # Each kind once, then by weight: a short run has all, too.
        kind = kinds.pop() if kinds else draw.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        rank = draw.randrange(ranks)
        length, value, text = 1, 0.0, ""
        match kind:
            case "straggler":
                length, value = draw.randint(8, 40), round(draw.uniform(1.25, 1.6), 2)
            case "evaluation":
                value = draw.randint(1, 3)
            case "pause":
                value = round(draw.uniform(0.1, 0.5) * BUS_TIMEOUT_S, 2)
            case "absence":
                value = round(draw.uniform(1.2, 2.0) * BUS_TIMEOUT_S, 2)
            case "order":
                length, text = draw.randint(15, 40), draw.choice(_OBJECTIVES)
        end = at + length
        if end + _AFTERMATH >= iterations:
            return
        yield Disturbance(kind, at, end, rank, value, text)
        at = end + _AFTERMATH + draw.randint(*_GAP)


def is_quiet(plan: Sequence[Disturbance], iteration: int) -> bool:
    """Whether no disturbance, and no answer to one, falls into an iteration."""
    return iteration >= SETTLED and not any(one.begin <= iteration < one.end + _AFTERMATH for one in plan)


def write_plan(file: Path, plan: Sequence[Disturbance]) -> None:
    """Write the disturbances for the ranks."""
    file.write_text(json.dumps([asdict(one) for one in plan], indent=1), encoding="utf-8")


def read_plan(file: Path) -> list[Disturbance]:
    """Read them."""
    return [Disturbance(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
