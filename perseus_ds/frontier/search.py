"""Random local search in windows of time.

A window holds instructions that run at about the same time; windows overlap. A trial makes some of a window's
instructions faster at random and fills the slack again, largest saving first. It keeps a change that saves energy, and
seldom one that costs a little (simulated annealing: Kirkpatrick et al., Science 220, 1983). Instructions outside the
window keep their options, so a trial costs the window's size and not the pipeline's. Time O(trials * window²). The
search is deterministic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.ordered import chosen_times, heads, tails

__all__ = ["fill", "search"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_WINDOW = 48
_ROUND = 20  # trials per window and round
_FASTER = 20  # instructions made faster per trial, at most
_STEPS = 6  # options faster, at most
_NOISE = 0.3  # of a saving's rank when filling


@njit(cache=True, nogil=True)
def fill(nodes, choice, times, limit_s):
    """Slow instructions down into the remaining slack, window by window.

    Args:
        nodes: An ``Ordered``.
        choice: Option of each node, shape (nodes,); changed in place.
        times: Times of the nodes in seconds, shape (nodes,); only those of constants matter.
        limit_s: The makespan allowed, in seconds.
    """
    size = times.size
    run = _Run(choice, chosen_times(nodes, choice, times), np.zeros(size), np.zeros(size))
    tails(nodes, 0, size, run.times, run.rest)
    for begin in range(0, size, _WINDOW // 2):
        _fill(nodes, run, begin, min(size, begin + _WINDOW), limit_s, 0.0)


@njit(cache=True, nogil=True)
def search(nodes, choice, times, limit_s, temperature_j, trials):
    """Search window by window, in several rounds.

    Args:
        nodes: An ``Ordered``.
        choice: Option of each node, within the limit, shape (nodes,); changed in place to the best found.
        times: Times of the nodes in seconds, shape (nodes,); only those of constants matter.
        limit_s: The makespan allowed, in seconds.
        temperature_j: Scale of the joules that a kept change may cost.
        trials: Number of trials over all windows; each window has one round at least.
    """
    np.random.seed(0)
    size = times.size
    run = _Run(choice, chosen_times(nodes, choice, times), np.zeros(size), np.zeros(size))
    windows = (2 * size + _WINDOW - 1) // _WINDOW
    for _ in range(max(1, round(trials / (windows * _ROUND)))):
        tails(nodes, 0, size, run.times, run.rest)
        for begin in range(0, size, _WINDOW // 2):
            end = min(size, begin + _WINDOW)
            _search_window(nodes, run, begin, end, limit_s, temperature_j)
            heads(nodes, begin, end, run.times, run.starts)


class _Run(NamedTuple):
    """How the pipeline runs; all of shape (nodes,).

    Attributes:
        choice: Option of each node.
        times: Its duration in seconds.
        starts: Its earliest start in seconds.
        rest: The longest path from its end in seconds.
    """

    choice: IntArray
    times: FloatArray
    starts: FloatArray
    rest: FloatArray


@njit(cache=True, nogil=True)
def _search_window(nodes, run, begin, end, limit_s, temperature_j):
    """Try random changes in one window, and keep the best."""
    choice, times = run.choice[begin:end], run.times[begin:end]
    now = best = 0.0
    best_choice, best_times = choice.copy(), times.copy()
    for _ in range(_ROUND):
        old_choice, old_times = choice.copy(), times.copy()
        change = _disturb(nodes, run, begin, end)
        change -= _fill(nodes, run, begin, end, limit_s, _NOISE)
        if change <= -temperature_j * np.log(np.random.random()):
            now += change
            if now < best:
                best = now
                best_choice[:], best_times[:] = choice, times
        else:
            choice[:], times[:] = old_choice, old_times
    choice[:], times[:] = best_choice, best_times


@njit(cache=True, nogil=True)
def _fill(nodes, run, begin, end, limit_s, noise):
    """Slow instructions of one window down while one fits, largest saving first; return the joules saved."""
    saved = 0.0
    choice, times, starts, rest = run
    heads(nodes, begin, end, times, starts)
    tails(nodes, begin, end, times, rest)
    while True:
        best, best_option, best_gain = -1, -1, 0.0
        for node in range(begin, end):
            option = choice[node]
            residual_s = limit_s - starts[node] - rest[node]
            if option < 0 or option + 1 >= nodes.end[node] or nodes.option_s[option + 1] > residual_s:
                continue
            slower = option + 1
            while slower + 1 < nodes.end[node] and nodes.option_s[slower + 1] <= residual_s:
                slower += 1
            gain = nodes.option_j[option] - nodes.option_j[slower]
            if noise > 0:
                gain *= 1 - noise + 2 * noise * np.random.random()
            if gain > best_gain:
                best, best_option, best_gain = node, slower, gain
        if best < 0:
            return saved
        saved += nodes.option_j[choice[best]] - nodes.option_j[best_option]
        choice[best] = best_option
        times[best] = nodes.option_s[best_option]
        heads(nodes, best + 1, end, times, starts)
        tails(nodes, begin, best, times, rest)


@njit(cache=True, nogil=True)
def _disturb(nodes, run, begin, end):
    """Make some instructions of a window faster at random; return the joules it costs."""
    cost = 0.0
    choice, times = run.choice, run.times
    for _ in range(1 + np.random.randint(_FASTER)):
        node = begin + np.random.randint(end - begin)
        if choice[node] > nodes.first[node]:
            faster = max(nodes.first[node], choice[node] - 1 - np.random.randint(_STEPS))
            cost += nodes.option_j[faster] - nodes.option_j[choice[node]]
            choice[node] = faster
            times[node] = nodes.option_s[faster]
    return cost
