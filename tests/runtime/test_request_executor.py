"""Requests carried out: each becomes the right question to the coordinator, with what this rank has to hand in."""

from types import SimpleNamespace

import pytest
from lone_rank import CLOCKS_MHZ, LoneRank

from perseus_ds.coordination.requests import (
    BeginProfiling,
    RescaleProfile,
    ResumePlans,
    RetraceIteration,
    SolveProfile,
    SolveStragglers,
)
from perseus_ds.coordination.stage_report import StageReport
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace


class Asked:
    """A channel that notes what it is asked, and a coordinator that notes what it is to do."""

    def __init__(self) -> None:
        self.version, self.versions, self.handed_in, self.done = 0, [], [], []

    def ask(self, version, solve, hand_in=None) -> None:
        self.versions.append(version)
        self.handed_in.append(hand_in)
        solve(self, ["what the ranks have handed in"])

    def collect(self) -> tuple:
        return ()

    def __getattr__(self, name):
        return lambda *arguments: self.done.append((name, *arguments))


@pytest.fixture
def rank(tmp_path, monkeypatch):
    rank = LoneRank(tmp_path)
    rank.executor.channel = Asked()
    for method in ("solve", "retrace"):
        monkeypatch.setattr(
            f"perseus_ds.runtime.request_executor.Coordinator.{method}",
            lambda asked, gathered, method=method: asked.done.append((method, gathered)),
        )
    return rank


@pytest.mark.parametrize(
    ("request_made", "done"),
    [
        (ResumePlans(1), ("resume",)),
        (SolveStragglers(2, ((0, (1.0, 1.3)),)), ("straggler_plans", ((0, (1.0, 1.3)),))),
        (RescaleProfile(3, (1.1, 1.2)), ("rescale", (1.1, 1.2))),
    ],
)
def test_what_needs_nothing_of_the_ranks(rank, request_made, done):
    rank.executor.execute(request_made, iteration=20)
    assert rank.executor.channel.done == [done]
    assert rank.executor.channel.versions == [request_made.version]
    assert rank.executor.channel.handed_in == [None]


def test_a_profile_is_handed_in_by_who_has_swept(rank):
    for _ in range(12):
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    rank.meter.collect()
    rank.executor.execute(BeginProfiling(least_iteration_s=0.01, baseline=range(3, 11)), 12)
    rank.executor.execute(SolveProfile(1, baseline=range(24, 28)), 30)
    (report,) = rank.executor.channel.handed_in
    assert report.args == (rank.executor.profiler, range(24, 28), {1200: ((0.01, 0.02),)})
    assert rank.executor.channel.done == [("solve", ["what the ranks have handed in"])]
    assert set(rank.executor.profiler.next_clocks().planned_mhz) <= set(CLOCKS_MHZ)


def test_a_rank_hands_in_the_latencies_that_its_readings_and_its_instructions_tell(rank):
    told = SimpleNamespace(latencies_s={900: [(0.02, 0.03)], 1200: [(0.0, 0.04)]})
    found = StageReport(rank.meter.topology, object(), told)
    rank.executor.profiler = SimpleNamespace(report=lambda baseline: found)
    rank.executor.execute(SolveProfile(1, baseline=range(24, 28)), 30)
    handed_in = rank.executor.channel.handed_in[0]()
    assert handed_in.latencies_s == {900: [(0.02, 0.03)], 1200: [(0.01, 0.02), (0.0, 0.04)]}


def test_the_sweep_is_made_from_the_baseline_and_from_what_all_ranks_agree_on(tmp_path, monkeypatch):
    rank = LoneRank(tmp_path, latency_s=0.01, warmup_iterations=2, baseline_iterations=3)
    for takes_s in [0.02] * 2 + [0.001] * 3 + [0.02] * 2:
        rank.runs(Kind.FORWARD, Kind.BACKWARD, takes_s=takes_s)
    rank.meter.collect()
    made, swept = [], []
    monkeypatch.setattr("perseus_ds.runtime.request_executor.Profiler", lambda *given: made.append(given))
    monkeypatch.setattr(
        "perseus_ds.runtime.request_executor.Sweep", lambda *given, **named: swept.append((given, named))
    )
    rank.meter.topology = topology = Topology(0, 4, 0, 1, 0, 4)
    rank.executor.execute(BeginProfiling(least_iteration_s=0.08, baseline=range(2, 5)), 7)
    ((place, measurements, _, latency_s, first, _),) = made
    (((order, clocks_mhz, _), sweeps),) = swept
    assert (place, measurements, clocks_mhz) == (topology, rank.meter.measurements, CLOCKS_MHZ)
    assert [key.kind for key in order] == [Kind.FORWARD, Kind.BACKWARD]
    assert (latency_s, first) == (0.01, 2)
    assert sweeps["settle_s"] == latency_s
    assert sweeps["instruction_s"] == pytest.approx(0.01)  # two of its own, and six of waiting for three other stages


def test_a_trace_is_of_the_latest_iterations_and_taken_at_once(rank):
    durations_s = [0.001] * 6 + [0.02] * 8 + [0.001]
    for takes_s in durations_s:
        rank.runs(Kind.FORWARD, Kind.BACKWARD, takes_s=takes_s)
    rank.session.iteration_begin(1, training=True)
    rank.executor.execute(RetraceIteration(4), iteration=15)
    rank.meter.forget(1000)
    topology, trace = rank.executor.channel.handed_in[0]()
    assert topology == rank.meter.topology
    assert isinstance(trace, StageTrace)
    assert [timed.operation.kind for timed in trace.operations] == [Kind.FORWARD, Kind.BACKWARD]
    assert all(timed.duration_s > 0.015 for timed in trace.operations), "iterations 6 to 13"
    assert rank.executor.channel.done == [("retrace", ["what the ranks have handed in"])]
