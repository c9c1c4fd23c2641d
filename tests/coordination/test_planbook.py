"""Look-ups in a plan book: two pipelines of two stages, plans at 10, 11, 12 and 13 seconds."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.coordination.planbook import Detours, Peers, PlanBook, PlanPoint, Route
from perseus_ds.pipeline.schedules import schedule_dag

HEALTHY = np.ones((2, 2))


def route(times_s, slowdowns=(1.0, 1.0)) -> Route:
    points = tuple(PlanPoint(time_s, 100.0 - time_s, 90.0, ({}, {}), 0) for time_s in times_s)
    return Route(slowdowns, times_s[0], times_s[-1], times_s[0], points)


@pytest.fixture
def book():
    dag = schedule_dag("1f1b", stages=2, microbatches=4)
    fastest_s = np.ones(len(dag.instructions))
    assert dag.makespan(fastest_s) == pytest.approx(10.0)
    peers = Peers(dag, fastest_s, route([10.0, 11.0, 12.0, 13.0]), 100.0, 10.0, 5.0, {})
    return PlanBook(1, 4, 10.0, (peers,), (0, 0))


def test_without_stragglers_everybody_runs_the_fastest_plan(book):
    assert [point.time_s for point in book.choose(HEALTHY)] == [10.0, 10.0]


@pytest.mark.parametrize(("slowdown", "t_opt_s"), [(1.1, 10.0), (1.15, 11.0), (1.25, 12.0), (2.0, 13.0)])
def test_the_others_run_the_slowest_plan_within_t_prime_but_never_beyond_t_star(book, slowdown, t_opt_s):
    slowdowns = np.array([[1.0, 1.0], [1.0, slowdown]])
    assert book.t_prime_s(slowdowns) == pytest.approx(2 + 8 * slowdown)
    others, straggler = book.choose(slowdowns)
    assert others.time_s == t_opt_s
    assert straggler.time_s == 10.0  # it has no plan of its own yet, and must not slow down further


def test_the_straggler_runs_its_own_frontier_once_it_has_one(book):
    slowdowns = np.array([[1.0, 1.0], [1.0, 1.5]])
    detour = route([14.0, 15.0], slowdowns=(1.0, 1.5))
    assert book.missing(slowdowns) == [(0, (1.0, 1.5))]
    with_detour = book.with_detours(Detours(2, {(0, (1.0, 1.5)): detour}))
    assert with_detour.version == 2
    assert not with_detour.missing(slowdowns)
    assert [point.time_s for point in with_detour.choose(slowdowns)] == [13.0, 14.0]
    # As soon as it has recovered, the detour no longer fits.
    assert [point.time_s for point in with_detour.choose(HEALTHY)] == [10.0, 10.0]


def test_a_slower_objective_is_kept(book):
    base = Route((1.0, 1.0), 10.0, 13.0, 11.5, book.peers[0].base.points)
    relaxed = replace(book, peers=(replace(book.peers[0], base=base),))
    assert relaxed.choose(HEALTHY)[0].time_s == 11.0


def test_old_detours_are_forgotten_before_they_fill_the_memory(book):
    for version in range(2, 60):
        condition = (1.0, 1.0 + version / 100)
        book = book.with_detours(Detours(version, {(0, condition): route([14.0], slowdowns=condition)}))
    assert len(book.peers[0].detours) == 16
    assert condition in book.peers[0].detours
