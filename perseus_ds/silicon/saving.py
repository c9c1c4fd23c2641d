"""Experiment: does a refreshed baseline, read as rarely as in a calm job, tell the saving that all readings tell?

No clock may be set, so baseline and plan differ in their work: the plan's forwards are shorter, its waits longer. A
sweep of both tells the powers. What is true, whole iterations tell, read often, without any model.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.whole import whole_energies
from perseus_ds.silicon.lab import Lab, Load, between
from perseus_ds.silicon.outcome import Limit, Outcome, judged
from perseus_ds.silicon.powers import Rows, changed

__all__ = ["BASELINE", "PLAN", "Block", "Refreshes", "judge", "measure", "saving"]

NAME = "saving"

BASELINE, PLAN = 2, 1
"""What stands for their clocks: the baseline's is the higher one."""

_FORWARD_S = {BASELINE: 0.07, PLAN: 0.04}
_BACKWARD_S, _SLOT_S, _MICROBATCHES = 0.04, 0.13, 6
_FORWARD, _BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
_SWEEP, _APART, _AROUND, _REFRESH, _REFRESHES = 24, 16, 8, 4, 4
_READ_EVERY_S = _MICROBATCHES * _SLOT_S / 20.0  # as a calm job does
_HANDSHAKES = 20
_FEWEST = 20
_WITHIN = 0.005

_Moves = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Block:
    """Iterations of one kind in a row.

    Attributes:
        which: ``BASELINE`` or ``PLAN``; 0: both by chance.
        spans: Their work, an iteration each.
        until_s: Their end.
    """

    which: int
    spans: tuple[tuple[Span, ...], ...]
    until_s: float

    @property
    def borders_s(self) -> list[float]:
        """Begins of all iterations, and the end of the last."""
        return [*(spans[0].begin_s for spans in self.spans), self.until_s]


@dataclass(frozen=True)
class Refreshes:
    """What ran, and the energy counter meanwhile.

    Attributes:
        sweep: What tells the powers: micro-batches of both, by chance.
        blocks: Of the plan, with the baseline between.
        rows: Readings of the counter.
    """

    sweep: Block
    blocks: tuple[Block, ...]
    rows: Rows


def saving(lab: Lab) -> Outcome:
    """Measure and judge."""
    return judge(measure(lab))


def measure(lab: Lab) -> Refreshes:
    """Run a sweep, and refreshes among the plan's iterations."""
    chance = np.random.default_rng(3)
    sweep = [PLAN if one else BASELINE for one in chance.integers(2, size=_SWEEP * _MICROBATCHES)]
    refresh = [[BASELINE] * _REFRESH * _MICROBATCHES, [PLAN] * _APART * _MICROBATCHES]
    program = [sweep, refresh[1], *(refresh * _REFRESHES), [PLAN]]
    handshakes = [lab.handshake() for _ in range(_HANDSHAKES)]
    watch = lab.watch(("energy_j",))
    on_device_s = [[_microbatch(lab, which) for which in block] for block in program]
    lab.sleep(1.0)
    rows = watch.stop()
    on_host = between([*handshakes, *(lab.handshake() for _ in range(_HANDSHAKES))])
    borders_s = [[list(map(on_host, one)) for one in block] for block in on_device_s]
    blocks = [
        _block(which, ran, then[0][0])
        for which, (ran, then) in zip(program, itertools.pairwise(borders_s), strict=False)
    ]
    return Refreshes(blocks[0], tuple(blocks[1:]), rows)


def _microbatch(lab: Lab, which: int) -> list[float]:
    """Run a forward and a backward, and wait for the rest of the slot; return their borders on the device's clock."""
    until_s = lab.now_s() + _SLOT_S
    stamps = [lab.stamp()]
    for load, seconds in ((Load.GENTLE, _FORWARD_S[which]), (Load.MEMORY, _BACKWARD_S)):
        lab.work(load, seconds)
        stamps.append(lab.stamp())
    lab.synchronize()
    borders_s = lab.device_s(stamps)
    lab.sleep(max(0.0, until_s - lab.now_s()))
    return borders_s


def _block(which: Sequence[int], borders_s: Sequence[Sequence[float]], until_s: float) -> Block:
    """Return a block from each micro-batch's kind and the borders of its instructions."""
    spans = [
        Span(begin_s, end_s, key, mhz)
        for mhz, one in zip(which, borders_s, strict=True)
        for key, (begin_s, end_s) in zip((_FORWARD, _BACKWARD), itertools.pairwise(one), strict=True)
    ]
    each = 2 * _MICROBATCHES
    iterations = tuple(tuple(spans[k : k + each]) for k in range(0, len(spans), each))
    return Block(which[0] if len(set(which)) == 1 else 0, iterations, until_s)


def judge(ran: Refreshes) -> Outcome:
    """Judge the saving that all refreshes tell together."""
    moves = changed(ran.rows)
    if len(moves) < _FEWEST:
        return judged(NAME, {}, Limit(False, f"the energy counter moved {len(moves)} times"))
    try:
        found = attribute([*_work((ran.sweep,))], [one for one in moves if one[0] < ran.sweep.until_s])
    except PerseusError as error:
        return judged(NAME, {}, Limit(False, str(error)))
    true_j, told_j = _true_j(ran.blocks, moves, found.lag_s), _told_j(ran, found)
    true, told = (statistics.mean(_saved(one) for one in energies_j) for energies_j in (true_j, told_j))
    off = [_saved(two) - _saved(one) for one, two in zip(true_j, told_j, strict=True)]
    figures: dict[str, float | str] = {
        "true_percent": 100.0 * true,
        "claimed_percent": 100.0 * told,
        "spread_points": 100.0 * statistics.stdev(off),
    }
    for which, name in ((BASELINE, "baseline"), (PLAN, "plan")):
        figures[f"{name}_j"] = statistics.mean(one[which] for one in true_j)
        figures[f"{name}_claimed_j"] = statistics.mean(one[which] for one in told_j)
    return judged(NAME, figures, Limit(abs(told - true) < _WITHIN, f"{told:.1%} claimed, {true:.1%} true"))


def _saved(energies_j: dict[int, float]) -> float:
    return 1.0 - energies_j[PLAN] / energies_j[BASELINE]


def _true_j(blocks: Sequence[Block], moves: _Moves, lag_s: float) -> list[dict[int, float]]:
    """Return the mean energies of each refresh and the plan's iterations around it, from all readings.

    The iterations that still show the baseline are the plan's: whatever they show too much, the baseline has drawn.
    """
    at_s, energy_j = np.array(moves).T
    late = math.ceil(lag_s / (_MICROBATCHES * _SLOT_S))
    found = []
    for borders_s in _around(blocks):
        before_j, baseline_j, after_j = (np.diff(np.interp(one, at_s, energy_j)) for one in borders_s)
        plan_j = float(np.mean([*before_j, *after_j[late:]]))
        drawn_j = float(baseline_j.sum() + after_j[:late].sum()) - len(after_j[:late]) * plan_j
        found.append({BASELINE: drawn_j / len(baseline_j), PLAN: plan_j})
    return found


def _around(blocks: Sequence[Block]) -> Iterator[tuple[list[float], list[float], list[float]]]:
    """Yield the borders of the iterations before each refresh, in it, and after it."""
    for before, baseline, after in zip(blocks[::2], blocks[1::2], blocks[2::2], strict=False):
        yield before.borders_s[-_AROUND - 1 :], baseline.borders_s, after.borders_s[: _AROUND + 1]


def _told_j(ran: Refreshes, found: Attribution) -> list[dict[int, float]]:
    """Return the same as a calm job would tell it: each refresh by itself, from rare readings and the fitted powers."""
    spans = [*_work((ran.sweep, *ran.blocks))]
    rarely = _rarely(ran.rows, found.period_s)
    told = []
    for borders_s in _around(ran.blocks):
        bounds_s = [bound for one in borders_s for bound in itertools.pairwise(one)]
        energies_j, _ = whole_energies(found, spans, rarely, bounds_s, usual_period_s=found.period_s)
        baseline_j = energies_j[_AROUND : _AROUND + _REFRESH]
        # The first iteration after a refresh, and the one before it, are on the way between two clocks.
        around_j = [*energies_j[: _AROUND - 1], *energies_j[_AROUND + _REFRESH + 1 :]]
        told.append({BASELINE: statistics.mean(baseline_j), PLAN: statistics.mean(around_j)})
    return told


def _work(blocks: Sequence[Block]) -> Iterator[Span]:
    """Return the work of some blocks in order of time."""
    return itertools.chain.from_iterable(spans for block in blocks for spans in block.spans)


def _rarely(rows: Rows, period_s: float) -> list[tuple[float, float]]:
    """Return the changed points that a keeper tells that reads the counter only now and then; see ``Watcher``."""
    taken = [rows[0]]
    for row in rows:
        if row[0] >= taken[-1][0] + _READ_EVERY_S:
            taken.append(row)
    pairs = [(old, new) for old, new in itertools.pairwise(taken) if new[1] != old[1]]
    return [(new[0] - min(new[0] - old[0], period_s) / 2.0, new[1][0]) for old, new in pairs]
