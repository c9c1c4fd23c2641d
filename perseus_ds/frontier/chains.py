"""The best options of a whole chain of instructions, while all other instructions keep theirs.

A chain is the instructions of one stage, or of one micro-batch, in order. ``labels`` chooses their options. Two things
delay an instruction of the chain: the other instructions, and paths that leave the chain and return to it within
``_REACH`` instructions. It must end early enough for its successors to keep the limit. A check of the makespan rejects
what longer paths break.

Time per chain: O(instructions * (labels * options + reach * concurrent nodes)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.labels import WAYS, Chain, best_options
from perseus_ds.frontier.ordered import heads, longest, tails

__all__ = ["Pricing", "choose_chains"]

FloatArray = NDArray[np.float64]

_REACH = 24


class Pricing(NamedTuple):
    """The value of time to a chain.

    Attributes:
        prices_w: The linear program's value of each node's time in watts, shape (nodes,).
        share: The fraction of the price that an instruction pays for its time. The rest only ranks labels.
        spread_j: Labels that are worse than the best one by more joules are dropped.
    """

    prices_w: FloatArray
    share: float
    spread_j: float


@njit(cache=True, nogil=True)
def choose_chains(nodes, chains, order, pricing, choice, times, limit_s, replace):
    """Choose the options of chains, one chain after the other.

    Args:
        nodes: An ``Ordered``.
        chains: A ``Csr``: each chain's nodes, ascending.
        order: Indices of the chains, in the order of their turns.
        pricing: A ``Pricing``.
        choice: Option of each node, shape (nodes,); changed in place.
        times: Time of each node in seconds, shape (nodes,); changed in place. With ``replace``, the times of a chain
            may differ from its choice until its turn comes.
        limit_s: The makespan allowed, in seconds.
        replace: Whether a chain takes the options found in any case. Otherwise it takes them only if they save energy.

    Returns:
        The number of chains changed; -1 if, with ``replace``, a chain's options break the limit.
    """
    size = times.size
    starts, rest, way = np.zeros(size), np.zeros(size), np.zeros(size)
    place = np.full(size, -1, dtype=np.int64)
    heads(nodes, 0, size, times, starts)
    tails(nodes, 0, size, times, rest)
    low, high, changed = size, 0, 0  # starts before low and ways from high on are right
    for number in order:
        chain = chains.members[chains.indptr[number] : chains.indptr[number + 1]]
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
        prices = pricing.prices_w[chain]
        amid = Chain(chain, ready, ways, way_s, limit_s - rest[chain], pricing.share * prices, prices)
        found = best_options(nodes, amid, pricing.spread_j)
        saved = 0.0
        for i in range(chain.size):
            saved += nodes.option_j[choice[chain[i]]] - nodes.option_j[found[i]]
        better = replace or saved > 1e-9 * pricing.spread_j
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
    """Find what each instruction of a chain waits for.

    Args:
        nodes: An ``Ordered``.
        chain: The chain's nodes, ascending, shape (size,).
        place: Position in the chain of each node, -1 elsewhere, shape (nodes,).
        times: Time of each node in seconds, shape (nodes,).
        starts: Earliest start of each node in seconds, shape (nodes,).
        way: Work array, shape (nodes,).

    Returns:
        ``ready_s``, ``ways`` and ``way_s`` of a ``Chain``, without paths that others imply.
    """
    size = chain.size
    ready = np.zeros(size)
    lag = np.full((size, _REACH), -np.inf)
    into, out_of = nodes.predecessors, nodes.successors
    for i in range(size):
        node = chain[i]
        for edge in range(into.indptr[node], into.indptr[node + 1]):
            tail = into.members[edge]
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
            for edge in range(out_of.indptr[other], out_of.indptr[other + 1]):
                head = out_of.members[edge]
                if head < last:
                    way[head] = max(way[head], way[other] + times[other])
    ways = np.full((size, WAYS), -1, dtype=np.int64)
    way_s = np.zeros((size, WAYS))
    for i in range(size):
        count, implied = 0, -np.inf
        for back in range(min(_REACH, i)):
            if lag[i, back] > implied + 1e-15 and count < WAYS:
                ways[i, count], way_s[i, count] = i - 1 - back, lag[i, back]
                count += 1
            implied = max(implied, lag[i, back]) + times[chain[i - 1 - back]] + lag[i - 1 - back, 0]
    return ready, ways, way_s
