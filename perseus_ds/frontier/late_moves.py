"""Moves of single clocks that make a plan punctual, or save energy in the time that is left.

The critical paths of all draws say whose time counts (the sampled gradient of a stochastic PERT network, Burt and
Garman: Conditional Monte Carlo, Management Science 18(3), 1971), and what a neighbour's clock adds to it.
Time O(rounds * (samples * nodes + instructions * clocks)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from perseus_ds.frontier.lateness import no_blame, run_late

__all__ = ["Terms", "hasten", "save"]

_ROUNDS = 30
_SHARE = 0.5  # of the lateness, or of the time left, that one round may take


class Terms(NamedTuple):
    """What moves must keep to.

    Attributes:
        limit_s: Expected iteration time allowed.
        mean_late_s: Mean lateness of a clock, counting early ones as 0; the mean earliness is the same.
        waiting_w: Power of all stages' waiting, on one GPU of each.
        dearest_w: What a second may cost.
    """

    limit_s: float
    mean_late_s: float
    waiting_w: float
    dearest_w: float


@njit(cache=True, nogil=True)
def hasten(nodes, clock, draws, terms):
    """Change clocks until the expected time is within the limit, or a second is too dear; ``clock`` is changed."""
    blame, before = no_blame(clock.size), clock.copy()
    before_s, before_j = np.inf, -np.inf
    for _ in range(_ROUNDS):
        expected_s, effective_j, _ = run_late(nodes, clock, draws, blame)
        energy_j = effective_j + terms.waiting_w * expected_s
        if energy_j - before_j > terms.dearest_w * (before_s - expected_s):
            clock[:] = before
            return
        if expected_s <= terms.limit_s:
            return
        before[:], before_s, before_j = clock, expected_s, energy_j
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms, True)
        price_w = np.where(to >= 0, cost_j / np.maximum(-change_s, 1e-12), np.inf)
        price_w[price_w > terms.dearest_w] = np.inf
        if _take(nodes, clock, to, -change_s, price_w, _SHARE * (expected_s - terms.limit_s), False) == 0:
            return


@njit(cache=True, nogil=True)
def save(nodes, clock, draws, terms):
    """Change clocks while that saves within the limit; ``clock`` is changed."""
    blame, kept = no_blame(clock.size), clock.copy()
    least_j, share = np.inf, _SHARE
    for _ in range(_ROUNDS):
        expected_s, effective_j, _ = run_late(nodes, clock, draws, blame)
        energy_j = effective_j + terms.waiting_w * expected_s
        if energy_j >= least_j or (expected_s > terms.limit_s and np.isfinite(least_j)):
            clock[:] = kept
            share /= 4
            if share < 0.1 * _SHARE:
                return
            continue
        kept[:], least_j = clock, energy_j
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms, False)
        change_s = np.maximum(change_s, 1e-12)
        price_w = np.where(to >= 0, -change_s / np.minimum(cost_j, -1e-12), np.inf)
        if _take(nodes, clock, to, change_s, price_w, share * (terms.limit_s - expected_s), True) == 0:
            return


@njit(cache=True, nogil=True)
def _take(nodes, clock, to, size_s, price, most_s, fitting):
    """Make the cheapest moves up to a sum of sizes, never of two neighbours; return how many."""
    taken, sum_s = 0, 0.0
    busy = np.zeros(clock.size, dtype=np.bool_)
    for node in np.argsort(price, kind="mergesort"):
        if price[node] == np.inf or sum_s >= most_s:
            break
        if busy[node] or (fitting and sum_s + size_s[node] > most_s):
            continue
        clock[node] = to[node]
        busy[node] = busy[nodes.before[node]] = busy[nodes.after[node]] = True
        sum_s += size_s[node]
        taken += 1
    return taken


@njit(cache=True, nogil=True)
def _best_moves(nodes, clock, blame, terms, faster):
    """Return each instruction's best other clock, -1 for none, and what it changes in time and energy."""
    count = clock.size
    to = np.full(count, -1, dtype=np.int64)
    change_s, cost_j = np.zeros(count), np.zeros(count)
    for node in range(count):
        best = 0.0
        now_s, now_j = _around(nodes, clock, blame, terms, node, clock[node])
        for other in range(nodes.clocks_mhz.size):
            if other == clock[node] or not nodes.allowed[nodes.row[node], other]:
                continue
            # A lower clock like a neighbour's spares a stall, but makes other paths critical: no gradient tells.
            if faster and other < clock[node]:
                continue
            then_s, then_j = _around(nodes, clock, blame, terms, node, other)
            time_s = then_s - now_s
            energy_j = then_j - now_j + terms.waiting_w * time_s
            if faster:
                value = -time_s / max(energy_j, 1e-4) if time_s < -1e-9 else 0.0
            else:
                value = -energy_j / max(time_s, 1e-6) if energy_j < -1e-6 else 0.0
            if value > best:
                best, to[node] = value, other
                change_s[node], cost_j[node] = time_s, energy_j
    return to, change_s, cost_j


@njit(cache=True, nogil=True)
def _around(nodes, clock, blame, terms, node, own):
    """Return what an instruction's clock adds to expected time and energy, with its neighbours'."""
    before, after = nodes.before[node], nodes.after[node]
    old, new = clock[before], clock[after]
    times, energies = nodes.option_s[nodes.row[node]], nodes.option_j[nodes.row[node]]
    held_s = _held_s(nodes, blame.ahead_s[node], node, own, old)
    time_s = (
        blame.critical[node] * times[own]
        + (blame.late_s[node] + blame.critical[node] * held_s) * (1 - times[own] / times[old])
        + blame.early_s[node] * (times[new] / times[own] - 1)
    )
    energy_j = energies[own] + (terms.mean_late_s + held_s) * (energies[old] - energies[own]) / times[old]
    energy_j += terms.mean_late_s * (energies[new] - energies[own]) / times[own]
    # An earlier request for this clock lets the next one be earlier, too.
    sooner_s = _asked_s(nodes, blame, node, own, old) - _asked_s(nodes, blame, node, clock[node], old)
    held_s = _held_s(nodes, blame.ahead_s[after] + sooner_s, after, new, own)
    times, energies = nodes.option_s[nodes.row[after]], nodes.option_j[nodes.row[after]]
    time_s += (blame.late_s[after] + blame.critical[after] * held_s) * (1 - times[new] / times[own])
    energy_j += (terms.mean_late_s + held_s) * (energies[own] - energies[new]) / times[own]
    times, energies = nodes.option_s[nodes.row[before]], nodes.option_j[nodes.row[before]]
    time_s += blame.early_s[before] * (times[own] / times[old] - 1)
    time_s += nodes.stall_s * (blame.critical[node] * (own != new) + blame.critical[before] * (own != old))
    return time_s, energy_j + terms.mean_late_s * (energies[own] - energies[old]) / times[old]


@njit(cache=True, nogil=True)
def _held_s(nodes, ahead_s, node, own, old):
    """Return for how much of its time an instruction stays at the clock before: it could be asked for no sooner."""
    if own == old:
        return 0.0
    return min(max(0.0, nodes.latency_s[own] - ahead_s), nodes.option_s[nodes.row[node], old])


@njit(cache=True, nogil=True)
def _asked_s(nodes, blame, node, own, old):
    """Return how long before an instruction's begin the latest request of its GPU is, if it has a clock of its own."""
    ahead_s = blame.ahead_s[node]
    if ahead_s == np.inf:
        return 0.0
    return ahead_s if own == old else min(nodes.latency_s[own], ahead_s)
