"""One rank's sweep in a training whose true powers are known."""

import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from pipeline_truth import TruePipeline

from perseus_ds.config import ProfilingConfig
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.profiling.window import SampledWindow
from perseus_ds.runtime.measurement import Measurements
from perseus_ds.runtime.profiler import Profiler
from perseus_ds.worker_process import call_here

CLOCKS_MHZ = tuple(range(1410, 1100, -15))
LATENCY_S, INSTRUCTION_S = 0.010, 0.05
BASELINE = (0, 1)
ALONE = Topology(0, 1, 0, 1, 0, 1)


def curve(kind: Kind) -> tuple[ProfilePoint, ...]:
    time_s = {mhz: (0.01 + 40.0 / mhz) * (1.0 if kind is Kind.FORWARD else 1.8) for mhz in CLOCKS_MHZ}
    return tuple(ProfilePoint(mhz, t, t * (100.0 + 300.0 * (mhz / 1410) ** 2.5)) for mhz, t in time_s.items())


class Training:
    """A stage that is alone, and what has been measured of it."""

    def __init__(self, topology: Topology = ALONE, counter: bool = True, max_iterations: int = 60) -> None:
        self.pipeline = TruePipeline({CurveKey(0, kind): curve(kind) for kind in (Kind.FORWARD, Kind.BACKWARD)})
        self.measurements, self.counter, self.iteration = Measurements(), counter, 0
        self.config = ProfilingConfig(max_iterations=max_iterations)
        sweep = Sweep(self.pipeline.keys(0), CLOCKS_MHZ, self.config, LATENCY_S, INSTRUCTION_S)
        self.calls: list[tuple] = []
        self.profiler = Profiler(topology, self.measurements, sweep, LATENCY_S, 0, self.calling)

    def calling(self, *args):
        self.calls.append(args)
        return call_here(*args)

    def runs(self, clocks_mhz: tuple[int, ...]) -> None:
        """Run an iteration; it is recorded, and the counter read."""
        before = len(self.pipeline.spans[0])
        self.pipeline.run([clocks_mhz])
        spans = self.pipeline.spans[0][before:]
        begin_s = self.pipeline.begin_s
        timed = [
            TimedOperation(Operation(one.key.kind), one.begin_s - begin_s, one.end_s - begin_s, one.frequency_mhz)
            for one in spans
        ]
        end_s = self.pipeline.now_s
        self.measurements.lasted(self.iteration, begin_s, end_s)
        self.measurements.recorded(RecordedIteration(begin_s, end_s, tuple(timed), iteration=self.iteration))
        if self.counter:
            self.measurements.samples = self.pipeline.samples(0)
        self.iteration += 1

    def lasted_s(self, iteration: int) -> float:
        return float(np.diff(self.measurements.energy_question([iteration], 0).bounds_s[iteration])[0])

    def drawn_j(self, iteration: int) -> float:
        """Return what the GPU has really drawn in an iteration."""
        edges_s, levels_w = self.pipeline.power[0]
        energy_j = np.append(0.0, np.cumsum(np.diff(edges_s) * levels_w[:-1]))
        return float(
            np.diff(
                np.interp(self.measurements.energy_question([iteration], 0).bounds_s[iteration], edges_s, energy_j)
            )[0]
        )

    def sweeps(self) -> None:
        while not self.profiler.done:
            self.runs(self.profiler.next_clocks().planned_mhz)
            wait_for_estimate(self.profiler)


def wait_for_estimate(profiler: Profiler) -> None:
    deadline_s = time.monotonic() + 60.0
    while profiler._estimating is not None and not profiler._estimating.done():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_the_report_has_the_true_curves_and_the_baseline_s_trace() -> None:
    training = Training()
    training.sweeps()

    report = training.profiler.report(BASELINE)

    assert training.profiler.iterations == training.iteration < 60
    assert report.topology == ALONE
    assert [one.operation.kind for one in report.trace.operations] == [key.kind for key in training.pipeline.keys(0)]
    assert report.trace.iteration_time_s == pytest.approx(training.lasted_s(0), rel=0.3)
    assert list(report.baseline_energies_j) == [0, 1], "the iterations of the baseline whose bounds are known"
    assert report.baseline_energies_j[1] == pytest.approx(training.drawn_j(1), rel=0.03)
    assert {key.kind for key in report.attribution.curves} == {Kind.FORWARD, Kind.BACKWARD}
    for key, points in report.attribution.curves.items():
        truth = {one.frequency_mhz: one for one in curve(key.kind)}
        for point in points:
            assert point.time_s == pytest.approx(truth[point.frequency_mhz].time_s, rel=0.01)
            assert point.energy_j == pytest.approx(truth[point.frequency_mhz].energy_j, rel=0.04)


def test_the_first_iterations_ask_early_so_that_requests_come_upon_instructions() -> None:
    training = Training()

    assert [training.profiler.next_clocks().asks_early for _ in range(4)] == [True, True, False, False]


def test_nothing_is_estimated_before_the_first_sweep_nor_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    training, go_on = Training(), threading.Event()
    monkeypatch.setattr(training.profiler, "_attribute", go_on.wait)
    estimating = []
    for _ in range(3):
        training.profiler.next_clocks()
        estimating.append(training.profiler._estimating)
    assert estimating[0] is None
    assert estimating[1] is estimating[2] is not None
    go_on.set()


def test_an_estimate_that_would_end_after_the_sweep_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler, lasts = Training(max_iterations=30).profiler, 8
    begun: list[tuple[int, Future]] = []

    def submit(_attribute) -> Future:
        begun.append((profiler.iterations, Future()))
        return begun[-1][1]

    monkeypatch.setattr(profiler._thread, "submit", submit)
    while not profiler.done:
        if begun and profiler.iterations == begun[-1][0] + lasts:
            begun[-1][1].set_exception(PerseusError("profiling-no-energy", updates=0, instructions=0))
        profiler.next_clocks()

    assert [iteration for iteration, _ in begun] == [1, 9, 17]


def test_the_window_is_looked_for_anew_whenever_there_is_more_than_twice_as_much_to_see() -> None:
    training = Training()
    training.sweeps()
    training.profiler.report(BASELINE)

    assert training.calls[0][0] is attribute
    anew = [number for number, call in enumerate(training.calls, start=1) if call[-1] is None]
    assert {1, 3, 7} <= set(anew)  # after one that explains nothing, too
    assert training.calls[-1][-1] is not None, "the report does not wait for a search"


def test_a_window_that_leaves_much_in_doubt_is_looked_for_once_more() -> None:
    """Seen on a simulated H200: the window of a few iterations left six times the noise, and was believed."""
    training = Training()

    def vague_with_a_guess(function, *question):
        training.calls.append(question)
        found = call_here(function, *question)
        if function is attribute and question[-1] is not None:
            return found.with_power(replace(found.power, sd=0.1 * found.power.values))
        return found

    training.profiler._call = vague_with_a_guess
    training.sweeps()
    assert training.calls[-1][-1] is not None, "the last estimate had a guess"
    training.profiler._guess = SampledWindow(3.7, 1.0)
    training.calls.clear()
    report = training.profiler.report(BASELINE)

    assert training.calls[0][-1] is None
    assert report.attribution.doubt < 0.1
    assert report.attribution.window.offset < 1.0


def test_a_vague_window_is_better_than_none_that_explains_the_counter() -> None:
    training = Training()
    training.sweeps()
    vague = SampledWindow(0.5, 0.5)
    training.profiler._guess, training.profiler._vague = vague, True

    def unexplained_without_a_guess(function, *question):
        training.calls.append(question)
        found = call_here(function, *question)
        if function is attribute and question[-1] is None:
            return replace(found, verdict=replace(found.verdict, outside=1.0))
        return found

    training.profiler._call = unexplained_without_a_guess
    training.calls.clear()
    report = training.profiler.report(BASELINE)

    assert [question[-1] for question in training.calls[:2]] == [None, vague]
    assert report.attribution.verdict.explained


def test_the_power_that_the_driver_shows_counts_in_the_report_only() -> None:
    training = Training()
    training.measurements.shown_w = [(1.0, 300.0)]
    shown: list[list[tuple[float, float]]] = []

    def noted(function, *question):
        if function is attribute:
            shown.append(question[5])
        return call_here(function, *question)

    training.profiler._call = noted
    training.sweeps()
    assert shown
    assert not any(shown), "estimates steer the sweep: a rough one will do"
    shown.clear()
    training.profiler.report(BASELINE)
    assert shown == [training.measurements.shown_w]


@pytest.mark.against_the_clock("an estimate that a busy host keeps waiting ends no sweep")
def test_estimates_end_the_sweep_earlier() -> None:
    steered = Training()
    steered.sweeps()

    blind = Sweep(steered.pipeline.keys(0), CLOCKS_MHZ, steered.config, LATENCY_S, INSTRUCTION_S)
    while not blind.done:
        blind.next_frequencies()

    assert steered.profiler.iterations < blind.iterations


def test_tensor_parallel_ranks_sweep_as_planned_whatever_they_estimate() -> None:
    training = Training(replace(ALONE, shard_size=2))
    planned = Sweep(training.pipeline.keys(0), CLOCKS_MHZ, training.config, LATENCY_S, INSTRUCTION_S)

    for _ in range(8):
        clocks = training.profiler.next_clocks()
        expected_mhz = planned.next_frequencies()
        assert (clocks.planned_mhz, clocks.beyond_mhz) == (expected_mhz, expected_mhz[-1])
        training.runs(clocks.planned_mhz)


def test_a_counter_that_does_not_move_is_an_error_at_the_end_only() -> None:
    training = Training(counter=False)
    training.sweeps()

    with pytest.raises(PerseusError, match="profiling-no-energy"):
        training.profiler.report(BASELINE)
