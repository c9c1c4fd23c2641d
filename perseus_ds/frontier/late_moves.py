"""Moves of single clocks that make a plan punctual, or save energy in the time that is left.

The critical paths of all draws say whose time counts (the sampled gradient of a stochastic PERT network, Burt and
Garman: Conditional Monte Carlo, Management Science 18(3), 1971), and what a neighbour's clock adds to it.
Time O(rounds * (samples * nodes + instructions * clocks)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from perseus_ds.frontier.late_runs import no_blame, run_late

__all__ = ["Terms", "drop_late", "expected_cost", "hasten", "save"]

_ROUNDS = 30
_SHARE = 0.5  # of the lateness, or of the time left, that one round may take
_HELD = 0.5  # a clock that comes after so much of its instruction is none
_DEARER = 5e-4  # as a share: what a plan without such clocks may cost more
_UNSEEN = 1 / 64  # of the draws, in which an instruction may be critical although it was not in any


class Terms(NamedTuple):
    """What moves must keep to.

    Attributes:
        limit_s: Expected iteration time allowed.
        mean_late_s: Mean lateness of a clock with the usual latency, counting early ones as 0; the mean earliness is
            the same.
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
    before_s, before_j, share = np.inf, -np.inf, _SHARE
    for _ in range(_ROUNDS):
        expected_s, effective_j, _ = run_late(nodes, clock, draws, blame)
        energy_j = effective_j + terms.waiting_w * expected_s
        if energy_j - before_j > terms.dearest_w * (before_s - expected_s):
            clock[:] = before
            share /= 4
            if share < 0.1 * _SHARE:
                return
            continue
        if expected_s <= terms.limit_s:
            return
        before[:], before_s, before_j = clock, expected_s, energy_j
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms, True)
        price_w = np.where(to >= 0, cost_j / np.maximum(-change_s, 1e-12), np.inf)
        price_w[price_w > terms.dearest_w] = np.inf
        if _take(nodes, clock, to, -change_s, price_w, share * (expected_s - terms.limit_s), False) == 0:
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
def drop_late(nodes, clock, draws, terms):
    """Ask for no clock that would come too late for its instruction, unless later ones win by it; changes ``clock``."""
    blame = no_blame(clock.size)
    limit_j = (1.0 + _DEARER) * expected_cost(nodes, clock, draws, terms, blame)[0]
    for node in nodes.order:
        if node >= clock.size or blame.held[node] <= _HELD:
            continue
        own, before = clock[node], clock[nodes.before[node]]
        if own != before and nodes.allowed[nodes.row[node], before]:
            clock[node] = before
            if expected_cost(nodes, clock, draws, terms, blame)[0] > limit_j:
                clock[node] = own
                expected_cost(nodes, clock, draws, terms, blame)


@njit(cache=True, nogil=True)
def expected_cost(nodes, clock, draws, terms, blame):
    """Return expected energy on one GPU of each stage with what it would cost to be in time, and expected time.

    ``blame`` is written.
    """
    expected_s, effective_j, _ = run_late(nodes, clock, draws, blame)
    late_s = max(0.0, expected_s - terms.limit_s)
    return effective_j + terms.waiting_w * expected_s + terms.dearest_w * late_s, expected_s


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
    count, clocks = clock.size, nodes.clocks_mhz.size
    to = np.full(count, -1, dtype=np.int64)
    change_s, cost_j = np.zeros(count), np.zeros(count)
    then_s, then_j = np.zeros(clocks), np.zeros(clocks)
    for node in range(count):
        if faster and blame.critical[node] + blame.late_s[nodes.after[node]] + blame.early_s[nodes.before[node]] == 0.0:
            continue  # nobody waits for it
        best, now, times = 0.0, clock[node], nodes.option_s[nodes.row[node]]
        _around(nodes, clock, blame, terms, node, then_s, then_j)
        # A lower clock like a neighbour's spares a stall, but makes other paths critical: no gradient tells.
        for other in range(now + 1 if faster else 0, clocks):
            if other == now or not nodes.allowed[nodes.row[node], other]:
                continue
            time_s = then_s[other] - then_s[now]
            if not faster:
                time_s = max(time_s, _UNSEEN * (times[other] - times[now]))
            energy_j = then_j[other] - then_j[now] + terms.waiting_w * time_s
            if faster:
                value = -time_s / max(energy_j, 1e-4) if time_s < -1e-9 else 0.0
            else:
                value = -energy_j / max(time_s, 1e-6) if energy_j < -1e-6 else 0.0
            if value > best:
                best, to[node] = value, other
                change_s[node], cost_j[node] = time_s, energy_j
    return to, change_s, cost_j


@njit(cache=True, nogil=True)
def _around(nodes, clock, blame, terms, node, then_s, then_j):
    """Write what each clock of an instruction would add to expected time and energy, with its neighbours'."""
    before, after = nodes.before[node], nodes.after[node]
    old, new = clock[before], clock[after]
    new_late_s = terms.mean_late_s * nodes.spread[new]
    ahead_s, after_ahead_s = blame.ahead_s[node], blame.ahead_s[after]
    critical, critical_before, critical_after = blame.critical[node], blame.critical[before], blame.critical[after]
    late_s, late_after_s = blame.late_s[node], blame.late_s[after]
    early_s, early_before_s = blame.early_s[node], blame.early_s[before]
    times, energies = nodes.option_s[nodes.row[node]], nodes.option_j[nodes.row[node]]
    last_s, last_j = nodes.option_s[nodes.row[before]], nodes.option_j[nodes.row[before]]
    next_s, next_j = nodes.option_s[nodes.row[after]], nodes.option_j[nodes.row[after]]
    asked_s = _asked_s(nodes, ahead_s, clock[node], old)
    for own in range(times.size):
        own_s, own_j = times[own], energies[own]
        own_late_s, wider = terms.mean_late_s * nodes.spread[own], nodes.spread[own] / nodes.spread[clock[node]]
        held_s = 0.0 if own == old else _held_s(nodes, ahead_s, own, times[old])
        # An earlier request for this clock lets the next one be earlier, too.
        sooner_s = _asked_s(nodes, ahead_s, own, old) - asked_s
        held_after_s = 0.0 if own == new else _held_s(nodes, after_ahead_s + sooner_s, new, next_s[own])
        then_s[own] = (
            critical * own_s
            + (wider * late_s + critical * held_s) * (1 - own_s / times[old])
            + early_s * (times[new] / own_s - 1)
            + (late_after_s + critical_after * held_after_s) * (1 - next_s[new] / next_s[own])
            + wider * early_before_s * (last_s[own] / last_s[old] - 1)
            + nodes.stall_s * (critical * (own != new) + critical_before * (own != old))
        )
        then_j[own] = (
            own_j
            + (own_late_s + held_s) * (energies[old] - own_j) / times[old]
            + new_late_s * (energies[new] - own_j) / own_s
            + (new_late_s + held_after_s) * (next_j[own] - next_j[new]) / next_s[own]
            + own_late_s * (last_j[own] - last_j[old]) / last_s[old]
        )


@njit(cache=True, nogil=True)
def _held_s(nodes, ahead_s, own, most_s):
    """Return for how much of its time an instruction stays at the clock before: it could be asked for no sooner."""
    return min(max(0.0, nodes.latency_s[own] - ahead_s), most_s)


@njit(cache=True, nogil=True)
def _asked_s(nodes, ahead_s, own, old):
    """Return how long before an instruction's begin the latest request of its GPU is, if it has a clock of its own."""
    if ahead_s == np.inf:
        return 0.0
    return ahead_s if own == old else min(nodes.latency_s[own], ahead_s)
