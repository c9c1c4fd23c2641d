"""The best options of one chain of instructions while all others stand still: dynamic programming over labels.

A chain is what one stage, or one micro-batch, runs in order. A label says how a beginning of the chain may be
run: when it ends and what it costs, one per bin of time, and only those that no earlier end beats in cost
(label setting, Hansen: Bicriterion path problems, 1980; the discrete time-cost trade-off of a chain is a knapsack,
De et al., Eur. J. Oper. Res. 81, 1995). An instruction starts when the others let it, and when the ways that
leave the chain and come back within ``_REACH`` instructions do; it ends when what comes after still keeps
the limit. What reaches farther is caught by a check of the makespan.

Time per chain O(instructions * (labels * options + reach * nodes that run meanwhile)).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from perseus_ds.frontier.ordered import heads, longest, tails

__all__ = ["choose_chains"]

_LABELS = 64
_REACH = 24
_WAYS = 12  # that come back to one instruction, the direct one included


@njit(cache=True, nogil=True)
def choose_chains(nodes, begin, members, order, choice, times, limit_s, prices, share, spread_j, replace):
    """Choose the options of chains one after the other; ``choice`` and ``times`` are changed.

    Args:
        nodes: An ``Ordered``.
        begin: Chain q is ``members[begin[q]:begin[q + 1]]``, ascending.
        members: See ``begin``.
        order: The chains to go through.
        choice: Option of each node.
        times: Time of each node; may differ from the choice's where ``replace`` is set and the chain's turn
            is still to come.
        limit_s: Makespan that must hold.
        prices: What the time of each node is worth in watts, after the linear program.
        share: Of the price, what an instruction pays for its time. The rest only ranks labels.
        spread_j: Labels so much worse than the best one are dropped.
        replace: A chain takes what is found, whatever it had; else only what saves energy.

    Returns:
        The number of chains changed; -1 if with ``replace`` the limit did not hold.
    """
    size = times.size
    starts, rest, way = np.zeros(size), np.zeros(size), np.zeros(size)
    place = np.full(size, -1, dtype=np.int64)
    heads(nodes, 0, size, times, starts)
    tails(nodes, 0, size, times, rest)
    low, high, changed = size, 0, 0  # starts before low and ways from high on are right
    for number in order:
        chain = members[begin[number] : begin[number + 1]]
        if chain.size == 0:
            continue
        old = times[chain]
        times[chain] = nodes.option_s[nodes.first[chain]]
        first, end = chain[0], chain[-1] + 1
        heads(nodes, min(first, low), end, times, starts)
        tails(nodes, first, max(end, high), times, rest)
        within_s = max(limit_s, longest(first, end, times, starts, rest))
        place[chain] = np.arange(chain.size)
        ready, ways, way_s = _ways(nodes, chain, place, times, starts, way)
        place[chain] = -1
        found = _best(
            nodes, chain, ready, limit_s - rest[chain], ways, way_s, share * prices[chain], prices[chain], spread_j
        )
        saved = 0.0
        for i in range(chain.size):
            saved += nodes.option_j[choice[chain[i]]] - nodes.option_j[found[i]]
        better = replace or saved > 1e-9 * spread_j
        if better:
            times[chain] = nodes.option_s[found]
            heads(nodes, first, end, times, starts)
            tails(nodes, first, end, times, rest)
            better = longest(first, end, times, starts, rest) <= within_s
        if better:
            choice[chain] = found
            changed += 1
        elif replace:
            return -1
        else:
            times[chain] = old
        low, high = first, max(high, end)
    return changed


@njit(cache=True, nogil=True)
def _ways(nodes, chain, place, times, starts, way):
    """Work out what an instruction of a chain waits for.

    Returns:
        When others let each start; from which instruction of the chain a way comes to it, -1 for none; and how
        long that way is. Ways that follow from those of the instructions between are left out.
    """
    size = chain.size
    ready = np.zeros(size)
    lag = np.full((size, _REACH), -np.inf)
    for i in range(size):
        node = chain[i]
        for edge in range(nodes.before[node], nodes.before[node + 1]):
            tail = nodes.tails[edge]
            if place[tail] < 0:
                ready[i] = max(ready[i], starts[tail] + times[tail])
        last = chain[min(size - 1, i + _REACH)] + 1
        way[node:last] = -np.inf
        way[node] = -times[node]
        for other in range(node, last):
            if way[other] == -np.inf:
                continue
            if other > node and place[other] >= 0:
                lag[place[other], place[other] - i - 1] = way[other]
                continue
            for edge in range(nodes.after[other], nodes.after[other + 1]):
                head = nodes.heads[edge]
                if head < last:
                    way[head] = max(way[head], way[other] + times[other])
    ways = np.full((size, _WAYS), -1, dtype=np.int64)
    way_s = np.zeros((size, _WAYS))
    for i in range(size):
        count, implied = 0, -np.inf
        for back in range(min(_REACH, i)):
            if lag[i, back] > implied + 1e-15 and count < _WAYS:
                ways[i, count], way_s[i, count] = i - 1 - back, lag[i, back]
                count += 1
            implied = max(implied, lag[i, back]) + times[chain[i - 1 - back]] + lag[i - 1 - back, 0]
    return ready, ways, way_s


@njit(cache=True, nogil=True)
def _best(nodes, chain, ready, latest, ways, way_s, paid_w, price_w, spread_j):
    """Return the options of the cheapest label at a chain's end; see the module's docstring."""
    size = chain.size
    ends, costs = np.zeros((size + 1, _LABELS)), np.zeros((size + 1, _LABELS))
    came, option = np.zeros((size + 1, _LABELS), dtype=np.int64), np.zeros((size + 1, _LABELS), dtype=np.int64)
    start, value, cost = np.zeros(_LABELS), np.zeros(_LABELS), np.full(_LABELS, np.inf)
    labels = 1
    for i in range(size):
        node = chain[i]
        first, last, rank_w = nodes.first[node], nodes.end[node], price_w[i] - paid_w[i]
        for label in range(labels):
            start[label] = _start(i, label, ready[i], ways, way_s, ends, came)
            value[label] = costs[i, label] + rank_w * start[label]
        low, high, least = np.inf, -np.inf, np.inf
        for one in range(first, last):
            for label in range(labels):
                if one == first or start[label] + nodes.option_s[one] <= latest[i]:
                    least = min(least, value[label] + nodes.option_j[one] + price_w[i] * nodes.option_s[one])
        lowest = np.min(value[:labels])
        for keep in (False, True):
            bin_s = max(1e-12, (high - low) / (_LABELS - 1)) * (1 + 1e-6)
            for one in range(first, last):
                priced_j = price_w[i] * nodes.option_s[one]
                rounding_j = 1e-9 * (abs(least) + abs(nodes.option_j[one]) + priced_j)  # of these very sums
                spare = least + spread_j + rounding_j - nodes.option_j[one] - priced_j
                if lowest > spare:
                    continue
                for label in range(labels):
                    end = start[label] + nodes.option_s[one]
                    if value[label] > spare or (one > first and end > latest[i]):
                        continue
                    if not keep:
                        low, high = min(low, end), max(high, end)
                        continue
                    at = int((end - low) / bin_s)
                    spent = costs[i, label] + nodes.option_j[one] + paid_w[i] * nodes.option_s[one]
                    if spent < cost[at]:
                        cost[at] = spent
                        ends[i + 1, at], came[i + 1, at], option[i + 1, at] = end, label, one
        labels, least = 0, np.inf
        for at in range(_LABELS):
            if cost[at] < least:
                least = cost[at]
                ends[i + 1, labels], costs[i + 1, labels] = ends[i + 1, at], least
                came[i + 1, labels], option[i + 1, labels] = came[i + 1, at], option[i + 1, at]
                labels += 1
        cost[:] = np.inf
    found = np.empty(size, dtype=np.int64)
    label = labels - 1  # the last is the cheapest
    for i in range(size - 1, -1, -1):
        found[i] = option[i + 1, label]
        label = came[i + 1, label]
    return found


@njit(cache=True, nogil=True)
def _start(i, label, ready, ways, way_s, ends, came):
    """Return when instruction ``i`` of a chain starts if the ones before are run as a label says."""
    start, at, back = ready, i, label
    for way in range(_WAYS):
        if ways[i, way] < 0:
            break
        while at > ways[i, way] + 1:
            back = came[at, back]
            at -= 1
        start = max(start, ends[at, back] + way_s[i, way])
    return start
