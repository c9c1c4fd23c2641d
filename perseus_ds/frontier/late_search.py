"""Random moves that make a plan cheaper whose clocks come late, or whose requests let GPUs stand still.

Requests keep their order, so each clock delays those after it, and single moves get stuck: a plan with many switches
becomes no plan with few. Here runs of equal clocks take another one, or their borders shift (``switch_moves``), and a
move that costs a little is kept seldom. A few draws judge each of them.
Time O(moves * samples * nodes), which is bounded.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.late_moves import Terms, expected_cost
from perseus_ds.frontier.late_runs import no_blame, run_late
from perseus_ds.frontier.lateness import Draws, Neighbours, drawn
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.switch_moves import draw_move

__all__ = ["searched"]

_SAMPLES = 64
_WORK = 16_000_000  # moves * samples * instructions: half a second
_MOVES = (10, 100)  # per instruction: fewer are not worth their time, and more find little
_HOT, _COLD = (0.1, 0.02), 0.002  # of an instruction's energy: what a kept move may cost at first, and in the end


def searched(
    problem: Problem, nodes: Neighbours, clock: NDArray[np.int64], draws: Draws, jitter_s: float, terms: Terms
) -> NDArray[np.int64] | None:
    """Return clocks that are likely to cost less, as indices; None if there are too many to find any in time.

    Args:
        problem: What is planned.
        nodes: Its ``Neighbours``.
        clock: Index of each instruction's clock to begin with.
        draws: The iterations that count; there is no time to judge each move by them.
        jitter_s: Standard deviation of a clock from the begin of its instruction.
        terms: What moves must keep to.
    """
    moves = min(_WORK // (_SAMPLES * clock.size), _MOVES[1] * clock.size)
    if moves < _MOVES[0] * clock.size:
        return None
    # Others than those that count: what is only on time in these shows in those.
    few, blame = drawn(problem, jitter_s, _SAMPLES, seed=2), no_blame(clock.size)
    found, scale_j = clock.copy(), float(np.abs(nodes.option_j[nodes.row, clock]).mean())
    for hot in _HOT:
        of_few_s, of_all_s = (run_late(nodes, found, some, blame)[0] for some in (few, draws))
        as_few = terms._replace(limit_s=terms.limit_s + of_few_s - of_all_s)
        _anneal(nodes, problem.dag.program, found, few, as_few, moves // len(_HOT), hot * scale_j, _COLD * scale_j)
    return found


@njit(cache=True, nogil=True)
def _anneal(nodes, program, clock, draws, terms, moves, hot_j, cold_j):
    """Make random moves; ``clock`` becomes the cheapest found."""
    np.random.seed(0)
    blame = no_blame(clock.size)
    cost_j, _ = expected_cost(nodes, clock, draws, terms, blame)
    best, best_j, before = clock.copy(), cost_j, clock.copy()
    warm_j, cooling = hot_j, (cold_j / hot_j) ** (1.0 / moves)
    indptr, members = program
    for _ in range(moves):
        warm_j *= cooling
        stage = np.random.randint(indptr.size - 1)
        if not _move(nodes, clock, members[indptr[stage] : indptr[stage + 1]]):
            continue
        then_j, _ = expected_cost(nodes, clock, draws, terms, blame)
        if then_j - cost_j > -warm_j * np.log(np.random.random()):
            clock[:] = before
            continue
        before[:], cost_j = clock, then_j
        if cost_j < best_j - 1e-9:
            best[:], best_j = clock, cost_j
    clock[:] = best


@njit(cache=True, nogil=True)
def _move(nodes, clock, stage):
    """Move a stage's clocks, if all of the instructions have the new one; return whether it did."""
    move = draw_move(clock, stage)
    if move.to == clock[stage[move.first]] or not 0 <= move.to < nodes.clocks_mhz.size:
        return False
    for position in range(move.first, move.first + move.length):
        if not nodes.allowed[nodes.row[stage[position % stage.size]], move.to]:
            return False
    for position in range(move.first, move.first + move.length):
        clock[stage[position % stage.size]] = move.to
    return True
