"""The options of one chain by dynamic programming over labels.

A label is one way to run the first part of a chain: its end time and its cost. There is one per time bin, and none
that an earlier end beats in cost (label setting, Hansen: Bicriterion path problems, 1980). The discrete time-cost
trade-off of a chain is a knapsack (De et al., Eur. J. Oper. Res. 81, 1995).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["WAYS", "Chain", "best_options"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

WAYS = 12  # that come back to one instruction, the direct one included
_LABELS = 64


class Chain(NamedTuple):
    """A chain among fixed nodes. Rows are instructions.

    Attributes:
        members: Its nodes.
        ready_s: Earliest start of each, given the others.
        ways: Position in the chain where a path to an instruction begins, -1 for none, shape (size, ways).
        way_s: Length of that path.
        latest_s: Latest end of each.
        paid_w: Price that it pays for its time.
        price_w: Value of its time.
    """

    members: IntArray
    ready_s: FloatArray
    ways: IntArray
    way_s: FloatArray
    latest_s: FloatArray
    paid_w: FloatArray
    price_w: FloatArray


class _Labels(NamedTuple):
    """Labels after each number of instructions, shape (size + 1, labels), and work arrays of the current step.

    Attributes:
        ends_s: End time of a label's part of the chain.
        costs_j: Its cost.
        came: The label before it.
        option: The option that led from there.
        start_s: Start of the current instruction after each label, shape (labels,).
        value_j: Each label's cost plus the value of its time, shape (labels,).
        bins_j: The least cost in each bin of ends, infinite if empty, shape (labels,).
    """

    ends_s: FloatArray
    costs_j: FloatArray
    came: IntArray
    option: IntArray
    start_s: FloatArray
    value_j: FloatArray
    bins_j: FloatArray


@njit(cache=True, nogil=True)
def best_options(nodes, chain, spread_j):
    """Return the options of the cheapest label at a chain's end.

    Args:
        nodes: An ``Ordered``.
        chain: A ``Chain``.
        spread_j: Labels worse than the best one by more are dropped.
    """
    size = chain.members.size
    labels = _Labels(
        np.zeros((size + 1, _LABELS)),
        np.zeros((size + 1, _LABELS)),
        np.zeros((size + 1, _LABELS), dtype=np.int64),
        np.zeros((size + 1, _LABELS), dtype=np.int64),
        np.zeros(_LABELS),
        np.zeros(_LABELS),
        np.full(_LABELS, np.inf),
    )
    count = 1
    for i in range(size):
        _start_labels(chain, labels, i, count)
        allowed_j = _allowed_j(nodes, chain, labels, i, count, spread_j)
        low_s, high_s = _span_s(nodes, chain, labels, i, count, allowed_j)
        bin_s = max(1e-12, (high_s - low_s) / (_LABELS - 1)) * (1 + 1e-6)
        _fill_bins(nodes, chain, labels, i, count, allowed_j, low_s, bin_s)
        count = _keep_pareto(labels, i + 1)
    found = np.empty(size, dtype=np.int64)
    label = count - 1  # the last is the cheapest
    for i in range(size - 1, -1, -1):
        found[i] = labels.option[i + 1, label]
        label = labels.came[i + 1, label]
    return found


@njit(cache=True, nogil=True)
def _span_s(nodes, chain, labels, i, count, allowed_j):
    """Return the earliest and the latest end of the labels within the spread."""
    first, end, latest_s = nodes.first[chain.members[i]], nodes.end[chain.members[i]], chain.latest_s[i]
    start_s, value_j = labels.start_s, labels.value_j
    low_s, high_s = np.inf, -np.inf
    lowest = np.min(value_j[:count])
    for one in range(first, end):
        time_s, spare = nodes.option_s[one], allowed_j[one - first]
        if lowest > spare:
            continue
        for label in range(count):
            end_s = start_s[label] + time_s
            if value_j[label] > spare or (one > first and end_s > latest_s):
                continue
            low_s, high_s = min(low_s, end_s), max(high_s, end_s)
    return low_s, high_s


@njit(cache=True, nogil=True)
def _fill_bins(nodes, chain, labels, i, count, allowed_j, low_s, bin_s):
    """Put the labels within the spread into bins of ends, the cheapest into each."""
    first, end, latest_s = nodes.first[chain.members[i]], nodes.end[chain.members[i]], chain.latest_s[i]
    start_s, value_j, bins_j, costs_j = labels.start_s, labels.value_j, labels.bins_j, labels.costs_j[i]
    ends_s, came, option = labels.ends_s[i + 1], labels.came[i + 1], labels.option[i + 1]
    lowest = np.min(value_j[:count])
    for one in range(first, end):
        time_s, spare = nodes.option_s[one], allowed_j[one - first]
        if lowest > spare:
            continue
        own_j = chain.paid_w[i] * time_s
        for label in range(count):
            end_s = start_s[label] + time_s
            if value_j[label] > spare or (one > first and end_s > latest_s):
                continue
            at = int((end_s - low_s) / bin_s)
            spent_j = costs_j[label] + nodes.option_j[one] + own_j
            if spent_j < bins_j[at]:
                bins_j[at] = spent_j
                ends_s[at], came[at], option[at] = end_s, label, one


@njit(cache=True, nogil=True)
def _allowed_j(nodes, chain, labels, i, count, spread_j):
    """Return, for each option of instruction ``i``, the largest value of a label that may continue with it."""
    first, end, latest_s = nodes.first[chain.members[i]], nodes.end[chain.members[i]], chain.latest_s[i]
    start_s, value_j = labels.start_s, labels.value_j
    own_j = nodes.option_j[first:end] + chain.price_w[i] * nodes.option_s[first:end]
    least = np.inf
    for one in range(end - first):
        for label in range(count):
            if one == 0 or start_s[label] + nodes.option_s[first + one] <= latest_s:
                least = min(least, value_j[label] + own_j[one])
    rounding_j = 1e-9 * (abs(least) + np.abs(nodes.option_j[first:end]) + chain.price_w[i] * nodes.option_s[first:end])
    return least + spread_j + rounding_j - own_j


@njit(cache=True, nogil=True)
def _keep_pareto(labels, row):
    """Move the Pareto-optimal labels to the row's front, empty the bins, and return their number."""
    count, least = 0, np.inf
    for at in range(_LABELS):
        if labels.bins_j[at] < least:
            least = labels.bins_j[at]
            labels.ends_s[row, count], labels.costs_j[row, count] = labels.ends_s[row, at], least
            labels.came[row, count], labels.option[row, count] = labels.came[row, at], labels.option[row, at]
            count += 1
    labels.bins_j[:] = np.inf
    return count


@njit(cache=True, nogil=True)
def _start_labels(chain, labels, i, count):
    """Compute the start of instruction ``i`` after each label, and the label's value."""
    ends_s, came = labels.ends_s, labels.came
    ways, way_s = chain.ways[i], chain.way_s[i]
    rank_w = chain.price_w[i] - chain.paid_w[i]
    for label in range(count):
        start_s, at, back = chain.ready_s[i], i, label
        for way in range(WAYS):
            if ways[way] < 0:
                break
            while at > ways[way] + 1:
                back = came[at, back]
                at -= 1
            start_s = max(start_s, ends_s[at, back] + way_s[way])
        labels.start_s[label] = start_s
        labels.value_j[label] = labels.costs_j[i, label] + rank_w * start_s
