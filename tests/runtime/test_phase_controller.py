"""What a phases does with what all ranks say, while the coordinator takes its time; the coordinator is a real one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from test_coordinator import TOPOLOGY, make

from perseus_ds.config import Config
from perseus_ds.coordination.resume import Resumable
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.rundata import read_events
from perseus_ds.rundir import RunDirectory
from perseus_ds.runtime.phase_controller import PhaseController

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
            future.set_result(make())

    def _ask(self, make: Callable[[], Any]) -> Future:
        future: Future = Future()
        self._asked.append((future, make))
        return future


class Job:
    """A resumed job of one pipeline, iteration by iteration."""

    def __init__(self, tmp_path, **straggler) -> None:
        config, self.directory = Config(run_dir=tmp_path, straggler=straggler), RunDirectory(tmp_path)
        self.bus, self.run_recorder = SlowBus(), RunRecorder(config, ALONE, self.directory, {})
        coordinator = make(tmp_path, self.directory)
        self.phases = PhaseController(
            config, ALONE, self.bus, coordinator, self.run_recorder, sets_clocks=True, known=Resumable.ALL
        )
        self.iteration = 0

    def runs(self, iterations: int, **signal: float) -> None:
        for _ in range(iterations):
            one = RankStatus(self.iteration, 1.0, 500.0, version=self.phases.held_version(), **signal).row()
            round_result = RoundResult(condense(np.array([one] * STAGES), STAGES)[None], STAGES)
            self.run_recorder.round_result(round_result)
            self.phases.take(round_result, self.iteration)
            self.run_recorder.iteration(self.iteration, self.phases.phase, self.phases.plans, MICROBATCHES)
            self.iteration += 1

    def events(self, kind: str) -> list[dict]:
        assert self.directory.flush()
        return [event for event in read_events(self.directory.path) if event["event"] == kind]


@pytest.mark.parametrize("before_the_plans", [True, False])
def test_who_is_announced_as_slow_gets_plans_whenever_that_was(tmp_path, before_the_plans):
    job = Job(tmp_path)
    if not before_the_plans:
        job.bus.answer()
        job.runs(2)
    job.runs(1, hint_pipeline=0, hint_slowdown=1.4)
    job.bus.answer()
    job.runs(1)  # the plan table is in force, and who is slow is known
    job.bus.answer()
    job.runs(1)
    assert list(job.phases.table.peers[0].straggler_plans) == [(1.4, 1.4)]
    assert job.phases.plans[0].time_s > 1.3 * job.phases.table.peers[0].base.t_min_s


def test_a_drift_is_answered_once_however_long_that_takes_and_then_all_are_as_healthy_as_before(tmp_path):
    job = Job(tmp_path, drift_iterations=5)
    job.bus.answer()
    job.runs(10)
    expected_s = job.phases.table.max_time_s
    job.runs(40, slowdown=1.2)
    assert len(job.events("drift")) == 1
    job.bus.answer()
    job.runs(10)
    assert job.phases.table.max_time_s == pytest.approx(1.2 * expected_s, rel=0.02)
    assert job.run_recorder._stats.series()[-1]["steady"]
    assert all(one.recovered_iteration is not None for one in job.run_recorder._stats.stragglers)
