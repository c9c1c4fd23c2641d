"""When a rank's energy is split up, what it hands in, and what comes of it on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from lone_rank import LoneRank

from perseus_ds.coordination.events import EnergySplitKnown
from perseus_ds.coordination.phases import Phase
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.breakdown import KindEnergy, energy_by_kind
from perseus_ds.runtime.energy_split import EnergySplit

FOUND = [KindEnergy("forward", 2.0, 0.4, 80.0), KindEnergy("waiting", 0.0, 0.1, 10.0)]


class TwoRankBus:
    """The coordinator's end of a bus with another rank that hands in the same."""

    def __init__(self) -> None:
        self.asked: list[tuple[Future, Callable[[], Any]]] = []

    def gather(self, make: Callable[[], Any]) -> Future:
        return self._ask(lambda: [make(), make()])

    def broadcast(self, make: Callable[[], Any]) -> Future:
        return self._ask(make)

    def answer(self) -> None:
        for future, make in self.asked:
            try:
                future.set_result(make())
            except Exception as error:
                future.set_exception(error)
        self.asked.clear()

    def _ask(self, make: Callable[[], Any]) -> Future:
        future: Future = Future()
        self.asked.append((future, make))
        return future


class Calls:
    """Makes the heavy calls; keeps what was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.questions: list[tuple] = []
        self.error = error

    def __call__(self, function: Callable, *question: Any) -> list[KindEnergy]:
        assert function is energy_by_kind
        self.questions.append(question)
        if self.error is not None:
            raise self.error
        return FOUND


@pytest.fixture
def rank(tmp_path) -> LoneRank:
    """A rank of stage 1 with six iterations, of which the counter has seen all but the last."""
    rank = LoneRank(tmp_path)
    rank.meter.topology = Topology(3, 4, 1, 2, 1, 2)
    for _ in range(6):
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    rank.session.iteration_begin(microbatches=1, training=True)
    recorded = rank.meter.measurements._recorded
    rank.meter.measurements.samples = [(0.0, 0.0), (recorded[4].end_s, 500.0)]
    return rank


def test_a_split_is_asked_for_every_so_often_and_known_once(rank):
    bus, split = TwoRankBus(), EnergySplit(10, 0.02, Calls())
    for iteration in range(11):
        assert split.begins(iteration, Phase.OBSERVING, bus, rank.meter, None) == []
        assert bool(bus.asked) == (iteration == 10)
    bus.answer()
    (known,) = split.begins(11, Phase.OBSERVING, bus, rank.meter, None)
    assert isinstance(known, EnergySplitKnown)
    assert known.iteration == 11
    assert [(row.rank, row.pipeline, row.stage, row.energy) for row in known.ranks] == [
        (3, 1, 1, one) for one in (*FOUND, *FOUND)
    ]
    assert known.told == known.ranks
    assert known.energies_j == {"forward": 80.0, "waiting": 10.0}, "of one of two pipelines"
    assert split.begins(12, Phase.OBSERVING, bus, rank.meter, None) == []


def test_a_split_that_takes_longer_than_the_next_one_is_far_is_told_too(rank):
    bus, split = TwoRankBus(), EnergySplit(10, 0.02, Calls())
    for iteration in (10, 20):
        assert split.begins(iteration, Phase.OBSERVING, bus, rank.meter, None) == []
    bus.answer()
    known = [split.begins(iteration, Phase.OBSERVING, bus, rank.meter, None) for iteration in (21, 22, 23)]
    assert [len(one) for one in known] == [1, 1, 0]


def test_what_the_ranks_have_lost_with_each_other_is_not_waited_for(rank):
    lost, bus, split = TwoRankBus(), TwoRankBus(), EnergySplit(10, 0.02, Calls())
    split.begins(10, Phase.OBSERVING, lost, rank.meter, None)
    split.forget()
    split.begins(20, Phase.OBSERVING, bus, rank.meter, None)
    bus.answer()
    assert len(split.begins(21, Phase.OBSERVING, bus, rank.meter, None)) == 1


def test_a_rank_hands_in_what_the_counter_has_seen(rank):
    bus, calls = TwoRankBus(), Calls()
    split = EnergySplit(10, 0.02, calls)
    split.begins(10, Phase.ENFORCING, bus, rank.meter, None)
    rank.meter.forget(1000)
    bus.answer()
    spans, samples, iterations, latency_s, found, usual_period_s = calls.questions[0]
    assert (iterations, latency_s, len(samples)) == (5, 0.02, 2)
    assert (found, usual_period_s) == (None, 0.1)
    assert [span.key.kind for span in spans] == [Kind.FORWARD, Kind.BACKWARD] * 5


@pytest.mark.parametrize("phase", [Phase.WARMUP, Phase.PROFILING, Phase.SOLVING])
def test_nothing_is_split_while_the_clocks_are_tried(rank, phase):
    bus, split = TwoRankBus(), EnergySplit(10, 0.0, Calls())
    split.begins(10, phase, bus, rank.meter, None)
    EnergySplit(0, 0.0, Calls()).begins(10, Phase.ENFORCING, bus, rank.meter, None)
    assert bus.asked == []


def test_a_counter_that_tells_nothing_and_too_few_iterations_make_no_rows(rank):
    error = PerseusError("profiling-no-energy", updates=0, instructions=0)
    bus, split = TwoRankBus(), EnergySplit(10, 0.0, Calls(error))
    split.begins(10, Phase.OBSERVING, bus, rank.meter, None)
    bus.answer()
    (known,) = split.begins(11, Phase.OBSERVING, bus, rank.meter, None)
    assert (known.ranks, known.told, known.energies_j) == ((), (), {})

    calls = Calls()
    split = EnergySplit(10, 0.0, calls)
    rank.meter.measurements.samples = []
    split.begins(20, Phase.OBSERVING, bus, rank.meter, None)
    bus.answer()
    assert split.begins(21, Phase.OBSERVING, bus, rank.meter, None)[0].ranks == ()
    assert calls.questions == []


def test_a_bus_that_fails_is_somebody_else_s_to_tell(rank):
    bus, split = TwoRankBus(), EnergySplit(10, 0.0, Calls(ValueError("made to fail")))
    split.begins(10, Phase.OBSERVING, bus, rank.meter, None)
    bus.answer()
    assert split.begins(11, Phase.OBSERVING, bus, rank.meter, None) == []
