"""Experiment: do a few iterations of the baseline, read as rarely as in a calm job, tell the true saving?

No clock may be set, so baseline and plan differ in their work: the plan's forwards are shorter, its waits longer. Long
blocks of each tell the energy of an iteration without any model. Short blocks of the baseline among the plan's are
what a job refreshes.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.whole import whole_energies_j
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
_SWEEP, _LONG, _AROUND, _REFRESH, _REFRESHES = 24, 16, 8, 4, 4
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
        before: A long block of the baseline and one of the plan.
        refreshed: Blocks of the plan, with the baseline between.
        after: As ``before``.
        rows: Readings of the counter.
    """

    sweep: Block
    before: tuple[Block, ...]
    refreshed: tuple[Block, ...]
    after: tuple[Block, ...]
    rows: Rows


def saving(lab: Lab) -> Outcome:
    """Measure and judge."""
    return judge(measure(lab))


def measure(lab: Lab) -> Refreshes:
    """Run a sweep, long blocks, refreshes, and long blocks again."""
    chance = np.random.default_rng(3)
    both = [(BASELINE, _LONG), (PLAN, _LONG)]
    refreshes = [(PLAN, _AROUND), *([(BASELINE, _REFRESH), (PLAN, _AROUND)] * _REFRESHES)]
    program = [[which] * count * _MICROBATCHES for which, count in (*both, *refreshes, *both, (PLAN, 1))]
    program.insert(0, [PLAN if one else BASELINE for one in chance.integers(2, size=_SWEEP * _MICROBATCHES)])
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
    return Refreshes(blocks[0], tuple(blocks[1:3]), tuple(blocks[3:-2]), tuple(blocks[-2:]), rows)


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
    """Judge the saving that all refreshes tell together: between those before and after, or half a point off."""
    moves = changed(ran.rows)
    if len(moves) < _FEWEST:
        return judged(NAME, {}, Limit(False, f"the energy counter moved {len(moves)} times"))
    alone_j = [{block.which: _in_a_row_j(block, moves) for block in blocks} for blocks in (ran.before, ran.after)]
    true = [_saved(one) for one in alone_j]
    figures: dict[str, float | str] = {"true_before_percent": 100 * true[0], "true_after_percent": 100 * true[1]}
    try:
        refreshed_j = _refreshed_j(ran, moves)
    except PerseusError as error:
        return judged(NAME, figures, Limit(False, str(error)))
    claims = [_saved(one) for one in refreshed_j]
    claimed = statistics.mean(claims)
    figures |= {"claimed_percent": 100 * claimed, "spread_points": 100 * statistics.stdev(claims)}
    for which, name in ((BASELINE, "baseline"), (PLAN, "plan")):
        figures[f"{name}_alone_j"] = statistics.mean(one[which] for one in alone_j)
        figures[f"{name}_refreshed_j"] = statistics.mean(one[which] for one in refreshed_j)
    holds = min(true) - _WITHIN < claimed < max(true) + _WITHIN
    return judged(NAME, figures, Limit(holds, f"{claimed:.1%} claimed, {true[0]:.1%} before, {true[1]:.1%} after"))


def _saved(energies_j: dict[int, float]) -> float:
    return 1.0 - energies_j[PLAN] / energies_j[BASELINE]


def _in_a_row_j(block: Block, moves: _Moves) -> float:
    """Return the energy of an iteration of a long block: whatever the counter shows late, it shows late in each."""
    at_s, energy_j = np.array(moves).T
    # What it shows of the block before may last for some iterations.
    shown_j = np.interp(block.borders_s[_LONG // 4 :], at_s, energy_j)
    return float(np.polyfit(np.arange(len(shown_j)), shown_j, 1)[0])


def _refreshed_j(ran: Refreshes, moves: _Moves) -> list[dict[int, float]]:
    """Return the mean energies of each refresh and the plan's iterations around it, as a calm job would."""
    swept, spans = ([*_work((ran.sweep,))], [*_work((ran.sweep, *ran.before, *ran.refreshed))])
    found = attribute(swept, [one for one in moves if one[0] < ran.sweep.until_s])
    rarely = _rarely(ran.rows, found.period_s)
    bounds_s = [list(itertools.pairwise(block.borders_s)) for block in ran.refreshed]
    told_j = iter(whole_energies_j(found, spans, rarely, [*itertools.chain(*bounds_s)], usual_period_s=found.period_s))
    blocks_j = [list(itertools.islice(told_j, len(one))) for one in bounds_s]
    # The first iteration after a border, and the one before it, are on the way between two clocks.
    around_j = [[*earlier[1:-1], *later[1:-1]] for earlier, later in zip(blocks_j[::2], blocks_j[2::2], strict=False)]
    pairs = zip(blocks_j[1::2], around_j, strict=True)
    return [{BASELINE: statistics.mean(one), PLAN: statistics.mean(around)} for one, around in pairs]


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
