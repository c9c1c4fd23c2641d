"""From what the core asks for to the plans it gets, while the coordinator takes its time; the coordinator is real."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from made_up_job import TOPOLOGY, make

from perseus_ds.config import Config
from perseus_ds.coordination.decision import IterationInput
from perseus_ds.coordination.orders import Order, objective_order
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.phases import Resumable
from perseus_ds.coordination.plan_channel import PlanChannel
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.frontier.objectives import Deadline
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.rundata import read_events
from perseus_ds.rundir import RunDirectory
from perseus_ds.runtime.request_executor import RequestExecutor

STAGES, MICROBATCHES = TOPOLOGY.stages, 4
ALONE = Topology(0, 1, 0, 1, 0, STAGES, framework="made up 1")


class SlowBus:
    """The bus of a rank that is alone; what is asked for is made when the test says so."""

    place = 0

    def __init__(self) -> None:
        self._asked: list[tuple[Future, Callable[[], Any]]] = []

    def broadcast(self, make: Callable[[], Any], prepare: object = None) -> Future:
        return self._ask(make)

    def gather(self, make: Callable[[], Any]) -> Future:
        return self._ask(lambda: [make()])

    def answer(self) -> None:
        while self._asked:
            future, make = self._asked.pop(0)
            try:
                future.set_result(make())
            except Exception as error:
                future.set_exception(error)

    def _ask(self, make: Callable[[], Any]) -> Future:
        future: Future = Future()
        self._asked.append((future, make))
        return future


class Job:
    """A resumed job of one pipeline, iteration by iteration."""

    def __init__(self, tmp_path, **straggler) -> None:
        config, self.directory = Config(run_dir=tmp_path, straggler=straggler), RunDirectory(tmp_path)
        self.bus, self.run_recorder = SlowBus(), RunRecorder(config, ALONE, self.directory, {})
        self.channel = PlanChannel(self.bus, make(tmp_path, self.directory), ranks=1)
        self.executor = RequestExecutor(config, self.channel, meter=None, switch_latency_s=0.0)
        self.controller = PhaseController(config, 1, STAGES, sets_clocks=True, known=Resumable.ALL)
        self.plans = ()
        self.iteration = 0

    def runs(self, iterations: int, order: Order | None = None, **signal: float) -> None:
        for _ in range(iterations):
            arrived = self.channel.collect()
            status = RankStatus(self.iteration, 1.0, 500.0, version=self.channel.version, **signal)
            row = (status if order is None else status.with_order(order)).row()
            round_result = RoundResult(condense(np.array([row] * STAGES), STAGES)[None], STAGES)
            decision = self.controller.decide(IterationInput(self.iteration, MICROBATCHES, round_result, arrived))
            for event in decision.events:
                self.run_recorder(event)
            for request in decision.requests:
                self.executor.execute(request, self.iteration)
            self.plans = decision.plans
            self.iteration += 1

    def events(self, kind: str) -> list[dict]:
        assert self.directory.flush()
        return [event for event in read_events(self.directory.path) if event["event"] == kind]


@pytest.mark.parametrize("before_the_plans", [True, False])
def test_who_is_announced_as_slow_gets_plans_whenever_that_was(tmp_path, before_the_plans):
    job = Job(tmp_path)
    job.runs(1)
    if not before_the_plans:
        job.bus.answer()
        job.runs(2)
    job.runs(1, Order("straggler", 0, 1.4))
    job.bus.answer()
    job.runs(1)  # the plan table is in force, and who is slow is known
    job.bus.answer()
    job.runs(1)
    assert list(job.controller.table.groups[0].straggler_plans) == [(1.4, 1.4)]
    assert job.plans[0].time_s > 1.3 * job.controller.table.groups[0].base.t_min_s
    assert [(event["subject"], event["value"]) for event in job.events("order")] == [(0, 1.4)]


def test_an_objective_between_two_plans_gets_its_own_and_no_frontier_is_solved_again(tmp_path, monkeypatch):
    job = Job(tmp_path)
    job.runs(1)
    job.bus.answer()
    job.runs(2)
    monkeypatch.setattr("perseus_ds.coordination.kept_frontiers.solve", None)
    points = job.controller.table.groups[0].base.points
    before, after = max(pairwise([plan.time_s for plan in points[:12]]), key=lambda pair: pair[1] - pair[0])
    asked_s = before + 0.6 * (after - before)
    job.runs(1, objective_order(Deadline(asked_s)))
    job.runs(1)
    assert job.plans[0].time_s == before, "until the plan is there"
    job.bus.answer()
    job.runs(1)
    job.bus.answer()
    job.runs(2)
    assert before < job.plans[0].time_s <= asked_s
    assert job.plans[0].energy_j < next(plan.energy_j for plan in points if plan.time_s == before)
    assert len(job.controller.table.groups[0].base.points) == len(points) + 1
    assert len(job.events("one_more_plan")) == 1
    assert len(job.events("plans")) == 1, "measurements go on counting"


def test_a_drift_is_answered_once_however_long_that_takes_and_then_all_are_as_healthy_as_before(tmp_path):
    job = Job(tmp_path, drift_iterations=5)
    job.runs(1)
    job.bus.answer()
    job.runs(10)
    expected_s = job.controller.table.max_time_s
    job.runs(40, slowdown=1.2)
    assert len(job.events("drift")) == 1
    job.bus.answer()
    job.runs(10)
    assert job.controller.table.max_time_s == pytest.approx(1.2 * expected_s, rel=0.02)
    assert job.run_recorder._stats.series()[-1]["steady"]
    assert [one.recovered_iteration is not None for one in job.run_recorder._stats.stragglers.records] == [
        True
    ] * STAGES


def test_versions_arrive_in_order_and_only_once(tmp_path):
    job = Job(tmp_path)
    job.channel.ask(1, lambda coordinator, _: coordinator.resume())
    job.channel.ask(2, lambda coordinator, _: coordinator.straggler_plans([(0, (1.0, 1.3))]))
    assert (job.channel.collect(), job.channel.version) == ((), 0)
    job.bus.answer()
    assert [arrived.version for arrived in job.channel.collect()] == [1, 2]
    assert (job.channel.collect(), job.channel.version) == ((), 2)


def test_what_the_ranks_hand_in_reaches_who_solves(tmp_path):
    job, seen = Job(tmp_path), []

    def solve(coordinator, gathered):
        seen.extend(gathered)
        return coordinator.resume()

    job.channel.ask(1, solve, hand_in=lambda: "mine")
    job.bus.answer()
    assert seen == ["mine"]
    assert [arrived.version for arrived in job.channel.collect()] == [1]


def test_what_goes_wrong_while_solving_is_raised_where_the_answer_is_awaited(tmp_path):
    job = Job(tmp_path)

    def solve(*_):
        raise ValueError("made to fail")

    job.channel.ask(1, solve)
    job.bus.answer()
    with pytest.raises(ValueError, match="made to fail"):
        job.channel.collect()
