"""When a refreshed baseline is measured, what a rank hands in, and what comes of it on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lone_rank import LoneRank
from made_up_plans import first_table
from test_energy_split import TwoRankBus

from perseus_ds.coordination.events import BaselineRefreshed
from perseus_ds.coordination.phases import Phase
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.whole import WholeEnergies, whole_energies
from perseus_ds.runtime.refreshed_baseline import RefreshedBaseline

TABLE = first_table(2)
REFRESHED = range(101, 105)


class Calls:
    """Makes the heavy calls; keeps what was asked. Each counter's doubt is 3 J."""

    def __init__(self, energies_j: Callable[[int], list[float]] = lambda count: [100.0] * count) -> None:
        self.questions: list[tuple] = []
        self.energies_j = energies_j

    def __call__(self, function: Callable, *question: Any) -> WholeEnergies:
        assert function is whole_energies
        self.questions.append(question)
        return WholeEnergies(self.energies_j(len(question[3])), 3.0)


@pytest.fixture
def rank(tmp_path) -> LoneRank:
    """A rank of the first of two pipelines that has run the iterations around a refresh."""
    rank = LoneRank(tmp_path)
    rank.session._iteration = 91
    for _ in range(92, 116):
        rank.runs(Kind.FORWARD, Kind.BACKWARD, takes_s=0.0)
    rank.session.iteration_begin(microbatches=1, training=True)
    rank.meter.topology = Topology(0, 4, 0, 2, 0, 2)
    return rank


def trains(refreshed: RefreshedBaseline, bus: TwoRankBus, rank: LoneRank, until: int = 118, table: Any = TABLE) -> int:
    """Begin iterations up to the one in which the energies are asked for, and return it."""
    for iteration in range(92, until):
        phase = Phase.BASELINE if iteration in REFRESHED else Phase.ENFORCING
        assert refreshed.begins(iteration, phase, table, bus, rank.meter, None) == []
        if bus.asked:
            return iteration
    return -1


def test_the_iterations_around_a_refresh_are_measured_once_all_are_known(rank):
    bus, calls = TwoRankBus(), Calls()
    refreshed = RefreshedBaseline(0.02, calls)
    asked = trains(refreshed, bus, rank)
    assert asked == 105 + 1 + 8 + 2, "one iteration settles, eight follow, and the last one's times come later"
    bus.answer()
    (known,) = refreshed.begins(asked + 1, Phase.ENFORCING, TABLE, bus, rank.meter, None)
    energies_j = dict.fromkeys(range(92, 114), 100.0)
    assert known == BaselineRefreshed(REFRESHED, energies_j, 3.0 / 2**0.5), "two ranks, two pipelines"
    assert refreshed.begins(asked + 2, Phase.ENFORCING, TABLE, bus, rank.meter, None) == []
    found, spans, _, bounds_s, latency_s, readings, usual_period_s = calls.questions[0]
    assert (found, latency_s, usual_period_s, len(bounds_s)) == (None, 0.02, 0.1, 22)
    assert len(spans) >= 2 * 22
    assert readings == rank.meter.measurements.readings


def test_a_counter_that_lags_needs_as_many_iterations_once_it_has_shown_the_refresh(rank):
    bus, calls = TwoRankBus(), Calls()
    lags = replace(TABLE, counter_lag_s=1.5 * TABLE.max_time_s)
    asked = trains(RefreshedBaseline(0.0, calls), bus, rank, 130, lags)
    assert asked == 105 + 1 + 2 + 8 + 2 + 2, "two while it shows the refresh, and two until it shows the last one"
    bus.answer()
    assert len(calls.questions[0][3]) == 22 + 2


def test_the_baseline_before_there_are_plans_is_none_of_its_business(rank):
    bus = TwoRankBus()
    assert trains(RefreshedBaseline(0.0, Calls()), bus, rank, 130, None) == -1


def test_what_one_rank_does_not_know_is_not_told(rank):
    def energies_j(count: int) -> list[float]:
        return [float("nan"), *[100.0] * (count - 1)]

    bus, refreshed = TwoRankBus(), RefreshedBaseline(0.0, Calls(energies_j))
    asked = trains(refreshed, bus, rank)
    bus.answer()
    (known,) = refreshed.begins(asked + 1, Phase.ENFORCING, TABLE, bus, rank.meter, None)
    assert sorted(known.energies_j) == [*range(93, 114)]


def test_a_counter_that_tells_nothing_refreshes_nothing(rank):
    def energies_j(count: int) -> list[float]:
        raise PerseusError("profiling-no-energy", updates=0, instructions=0)

    bus, refreshed = TwoRankBus(), RefreshedBaseline(0.0, Calls(energies_j))
    asked = trains(refreshed, bus, rank)
    bus.answer()
    assert refreshed.begins(asked + 1, Phase.ENFORCING, TABLE, bus, rank.meter, None) == []


def test_ranks_that_lose_each_other_ask_for_nothing(rank):
    bus, refreshed = TwoRankBus(), RefreshedBaseline(0.0, Calls())
    assert trains(refreshed, bus, rank, 103) == -1
    refreshed.forget()
    for iteration in range(103, 130):
        refreshed.begins(iteration, Phase.ENFORCING, TABLE, bus, rank.meter, None)
    assert bus.asked == []


def test_refreshes_closer_than_that_are_measured_one_after_the_other(rank):
    bus, refreshed, known = TwoRankBus(), RefreshedBaseline(0.02, Calls()), []
    for iteration in range(92, 132):
        phase = Phase.BASELINE if iteration in (100, 101, 106, 107) else Phase.ENFORCING
        known += refreshed.begins(iteration, phase, TABLE, bus, rank.meter, None)
        bus.answer()
    assert [one.iterations for one in known] == [range(100, 102), range(106, 108)]
