"""Ranks that have lost each other come back at the same iteration, with the coordinator's decisions."""

import threading
import time

import pytest
import torch.distributed as dist
from made_up_plans import STAGES, first_table
from rank_threads import on_ranks

from perseus_ds.config import Config
from perseus_ds.coordination import rejoin as module
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.rejoin import Rejoin, RejoinTerms, end_for_good
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology

TIMEOUT_S = 20.0


def core_with_plans(tmp_path) -> PhaseController:
    core = PhaseController(Config(run_dir=tmp_path), 1, STAGES, sets_clocks=True)
    core._adopt(first_table(1), 0)
    return core


class LostRanks:
    """The ranks of a pipeline whose bus is no good any more."""

    def __init__(self, tmp_path, attempts: int = 3) -> None:
        self.store = dist.HashStore()
        self.cores = [core_with_plans(tmp_path) for _ in range(STAGES)]
        self.made: list[int] = []
        limit = FailureLimit(attempts, 3600.0)
        self.buses = on_ranks(STAGES, lambda rank: self.make_bus(rank, self.store))
        self.terms = [
            RejoinTerms(
                self.store,
                STAGES,
                TIMEOUT_S,
                lambda store, rank=rank: self.make_bus(rank, store),
                lambda core: core,
                None if rank else limit,
            )
            for rank in range(STAGES)
        ]

    def make_bus(self, rank: int, store) -> Bus:
        self.made.append(rank)
        topology = Topology(rank, STAGES, 0, 1, rank, STAGES)
        return Bus(topology, TIMEOUT_S, lambda rows: rows.max(axis=0), 1, store)

    def leave(self, rank: int, iteration: int = 7) -> Rejoin:
        return Rejoin(self.terms[rank], self.buses[rank], self.cores[rank], 1, iteration, 0.0)


def go_on(way_back: Rejoin, iteration: int, barrier: threading.Barrier | None = None):
    """Train alone until all are back, as synchronous ranks do; returns the iteration and the offer."""
    deadline_s = time.monotonic() + 60.0
    while time.monotonic() < deadline_s:
        iteration += 1
        if offer := way_back.begins(iteration):
            return iteration, offer
        time.sleep(0.01)
        if barrier:
            barrier.wait(60.0)
    raise AssertionError("they do not come back")


def test_all_come_back_at_the_same_iteration_on_a_new_bus_though_one_asks_later(tmp_path):
    ranks, barrier, begun = LostRanks(tmp_path), threading.Barrier(STAGES), []

    def live(rank: int):
        iteration = 7
        if rank == 1:  # it notices an iteration later than the others
            iteration += 1
            barrier.wait(60.0)
            time.sleep(0.3)
        way_back = ranks.leave(rank, iteration)
        at, offer = go_on(way_back, iteration, barrier)
        begun.append(at)
        return offer.bus.post([rank]).result(TIMEOUT_S).tolist(), offer.core

    outcomes = on_ranks(STAGES, live)
    assert len(set(begun)) == 1
    assert [rows for rows, _ in outcomes] == [[[STAGES - 1.0]]] * STAGES
    for _, core in outcomes:
        assert core is not ranks.cores[0]
        assert (core.phase, core.version) == (ranks.cores[0].phase, 1)


def test_iterations_shorter_than_the_agreement_get_another_try(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LEAD", 0)  # always too late: the latest iteration has begun
    asked, agree = [], Bus.agree

    def spy(bus, value):
        asked.append(value)
        return agree(bus, value)

    monkeypatch.setattr(Bus, "agree", spy)
    ranks = LostRanks(tmp_path)
    ways_back = [ranks.leave(rank) for rank in range(STAGES)]
    deadline_s = time.monotonic() + 60.0
    while asked.count(False) < 2 * STAGES and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert asked.count(False) >= 2 * STAGES
    assert all(way_back.begins(8) is None for way_back in ways_back)
    on_ranks(STAGES, lambda rank: ways_back[rank].close())
    for way_back in ways_back:
        way_back._thread.join(2 * TIMEOUT_S)  # the last agreement may lack the other rank
        assert not way_back._thread.is_alive(), "it tries for ever"


def test_what_is_over_for_the_coordinator_is_over_for_all(tmp_path):
    ranks = LostRanks(tmp_path)
    ways_back = [ranks.leave(rank) for rank in range(1, STAGES)]
    end_for_good(ranks.store, 1, "too often")
    for way_back in ways_back:
        with pytest.raises(PerseusError, match="too often"):
            go_on(way_back, 7)


def test_a_bus_that_cannot_be_made_is_tried_again_and_counts_as_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_PAUSE_S", 0.05)
    ranks = LostRanks(tmp_path, attempts=1)
    make_bus, refused = ranks.make_bus, []

    def refuse(rank: int, store) -> Bus:
        if refused.count(rank) < 2:
            refused.append(rank)
            raise OSError("no network")
        return make_bus(rank, store)

    ranks.make_bus = refuse
    ways_back = [ranks.leave(rank) for rank in range(STAGES)]
    for way_back in ways_back:
        with pytest.raises(PerseusError, match="no network"):
            go_on(way_back, 7)
    assert refused.count(0) == 2


def test_a_solve_that_runs_on_the_old_bus_is_waited_for(tmp_path):
    ranks, solved = LostRanks(tmp_path), threading.Event()
    for bus in ranks.buses:
        bus.broadcast(lambda: solved.wait(30.0))
    ways_back = [ranks.leave(rank) for rank in range(STAGES)]
    time.sleep(0.5)
    assert len(ranks.made) == STAGES
    solved.set()
    assert len({go_on(way_back, 7)[0] for way_back in ways_back}) == 1
