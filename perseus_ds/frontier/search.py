"""Random local search in windows of time.

In overlapping windows of instructions that run at about the same time, some are made faster at random and the
window is filled again, largest saving first; a change is kept if it saves energy or, seldom, costs little
(simulated annealing: Kirkpatrick et al., Science 220, 1983). The surroundings of a window stand still, so that
a trial costs the window's size and not the pipeline's. Time O(trials * window²); deterministic.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from perseus_ds.frontier.ordered import chosen_times, heads, tails

__all__ = ["fill", "search"]

_WINDOW = 48
_ROUND = 20  # trials per window and round
_FASTER = 20  # instructions made faster per trial, at most
_STEPS = 6  # options faster, at most
_NOISE = 0.3  # of a saving's rank when filling


@njit(cache=True, nogil=True)
def fill(nodes, choice, times, limit_s):
    """Slow instructions down into the slack that is left, window by window; ``choice`` is changed.

    Args:
        nodes: An ``Ordered``.
        choice: Option of each node.
        times: Times of the nodes; only those of constants matter.
        limit_s: Makespan that must hold.
    """
    size = times.size
    chosen, starts, rest = chosen_times(nodes, choice, times), np.zeros(size), np.zeros(size)
    tails(nodes, 0, size, chosen, rest)
    for begin in range(0, size, _WINDOW // 2):
        _fill(nodes, begin, min(size, begin + _WINDOW), choice, chosen, starts, rest, limit_s, 0.0)


@njit(cache=True, nogil=True)
def search(nodes, choice, times, limit_s, temperature_j, trials):
    """Search window by window, several rounds; ``choice`` becomes the best found.

    Args:
        nodes: An ``Ordered``.
        choice: Option of each node; within the limit.
        times: Times of the nodes; only those of constants matter.
        limit_s: Makespan that must hold.
        temperature_j: Joules that a worse change may cost.
        trials: Altogether; at least one round per window.
    """
    np.random.seed(0)
    size = times.size
    chosen, starts, rest = chosen_times(nodes, choice, times), np.zeros(size), np.zeros(size)
    windows = (2 * size + _WINDOW - 1) // _WINDOW
    for _ in range(max(1, round(trials / (windows * _ROUND)))):
        tails(nodes, 0, size, chosen, rest)
        for begin in range(0, size, _WINDOW // 2):
            end = min(size, begin + _WINDOW)
            now = best = 0.0
            best_choice, best_times = choice[begin:end].copy(), chosen[begin:end].copy()
            for _ in range(_ROUND):
                old_choice, old_times = choice[begin:end].copy(), chosen[begin:end].copy()
                change = _disturb(nodes, begin, end, choice, chosen)
                change -= _fill(nodes, begin, end, choice, chosen, starts, rest, limit_s, _NOISE)
                if change <= -temperature_j * np.log(np.random.random()):
                    now += change
                    if now < best:
                        best = now
                        best_choice[:], best_times[:] = choice[begin:end], chosen[begin:end]
                else:
                    choice[begin:end], chosen[begin:end] = old_choice, old_times
            choice[begin:end], chosen[begin:end] = best_choice, best_times
            heads(nodes, begin, end, chosen, starts)


@njit(cache=True, nogil=True)
def _fill(nodes, begin, end, choice, times, starts, rest, limit_s, noise):
    """Slow instructions of one window down while any fits, largest saving first; return the joules saved."""
    saved = 0.0
    heads(nodes, begin, end, times, starts)
    tails(nodes, begin, end, times, rest)
    while True:
        best, best_option, best_gain = -1, -1, 0.0
        for node in range(begin, end):
            option = choice[node]
            room = limit_s - starts[node] - rest[node]
            if option < 0 or option + 1 >= nodes.end[node] or nodes.option_s[option + 1] > room:
                continue
            slower = option + 1
            while slower + 1 < nodes.end[node] and nodes.option_s[slower + 1] <= room:
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
def _disturb(nodes, begin, end, choice, times):
    """Make some instructions of a window faster at random; return the joules it costs."""
    cost = 0.0
    for _ in range(1 + np.random.randint(_FASTER)):
        node = begin + np.random.randint(end - begin)
        if choice[node] > nodes.first[node]:
            faster = max(nodes.first[node], choice[node] - 1 - np.random.randint(_STEPS))
            cost += nodes.option_j[faster] - nodes.option_j[choice[node]]
            choice[node] = faster
            times[node] = nodes.option_s[faster]
    return cost
