"""The log lines that a history of events makes."""

import logging

import numpy as np
import pytest
from made_up_plans import STAGES, route_of

from perseus_ds.config import Config
from perseus_ds.coordination.events import (
    DriftFound,
    GuardStepped,
    IterationBegan,
    JobEnded,
    PhaseEntered,
    PlanSwitched,
    RanksBack,
    RanksLost,
    RoundHeard,
)
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.event_log import JobLog, RankLog

PLANS = route_of((1.0, 1.0)).points[:2]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.DEBUG, "perseus_ds")

    def lines(*levels: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if not levels or record.levelname in levels]

    return lines


def heard(iteration: int) -> RoundHeard:
    row = condense(np.array([RankStatus(iteration, 1.25, 250.0).row()] * STAGES), STAGES)
    return RoundHeard(iteration + 2, RoundResult(row[None], STAGES), (), float("nan"))


def test_every_rank_tells_its_own_switches_when_debugging(said):
    log = RankLog(Topology(5, 8, 1, 2, 0, 2))
    for event in (PlanSwitched(12, PLANS), GuardStepped(13, 0.5), DriftFound(14, (1.1,))):
        log(event)
    log(RanksLost(15, "a pause"))
    log(RanksBack(17))
    assert said("DEBUG") == [
        f"rank 5: iteration 12: switches to {PLANS[1].time_s:.6f} s",
        "rank 5: iteration 13: caution 0.50",
        "rank 5: iteration 15: leaves the others: a pause",
        "rank 5: iteration 17: is back",
    ]
    assert said() == said("DEBUG")


def test_the_job_tells_its_phases_and_switches(said):
    log = JobLog(Config(run_dir="unused", simulator={}))
    log(PhaseEntered(0, Phase.WARMUP))
    log(PlanSwitched(12, PLANS))
    log(RanksBack(17))
    assert said("INFO") == [
        "iteration 0: warm-up (simulated GPUs)",
        f"iteration 12: all ranks switch to T = {PLANS[0].time_s:.3f} s, T = {PLANS[1].time_s:.3f} s",
        "iteration 17: all ranks are together again",
    ]


def test_every_so_many_iterations_one_is_told(said):
    log = JobLog(Config(run_dir="unused", report={"log_every": 4}))
    log(PhaseEntered(0, Phase.BASELINE))
    for iteration in range(10):
        log(heard(iteration))
    assert said("INFO")[1:] == [f"iteration {at}: baseline, 1.250 s, 500 J per pipeline" for at in (4, 8)]


def test_log_every_0_tells_none(said):
    log = JobLog(Config(run_dir="unused", report={"log_every": 0}))
    for iteration in range(30):
        log(heard(iteration))
    assert said() == []


def test_a_step_back_is_a_warning_and_the_way_forward_is_not(said):
    log = JobLog(Config(run_dir="unused"))
    log(GuardStepped(30, 0.5))
    log(GuardStepped(60, 0.0))
    (warning,), (info,) = said("WARNING"), said("INFO")
    assert warning.startswith("iteration 30: ")
    assert "50" in warning
    assert info.startswith("iteration 60: ")


def test_the_sweep_s_progress_ends_with_it(said):
    log = JobLog(Config(run_dir="unused", profiling={"max_iterations": 4}))
    log(PhaseEntered(0, Phase.PROFILING))
    for iteration in range(3):
        log(IterationBegan(iteration, Phase.PROFILING, False, ()))
    assert log._progress is not None
    log(PhaseEntered(3, Phase.SOLVING))
    assert log._progress is None
    log(PhaseEntered(4, Phase.PROFILING))
    log(JobEnded(Phase.PROFILING, {}))
    assert log._progress is None
