"""One rank's iterations: when an exception ends one of them, and when they grow while they are profiled."""

import time
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np

from perseus_ds.config import Config
from perseus_ds.coordination.rounds import condense
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.timers import HostTimer
from perseus_ds.report.run_stats import Phase
from perseus_ds.runtime.phase_controller import PhaseController
from perseus_ds.runtime.session import RankSession

CLOCKS_MHZ = (1400, 1200)


class LoneBus:
    """A bus with nobody else on it."""

    def __init__(self) -> None:
        self.signals = []

    def post(self, row) -> Future:
        self.signals.append(row)
        future: Future = Future()
        future.set_result(condense(np.array([row]), stages=1)[None])
        return future


def lone_rank(tmp_path, shard_size: int = 1, switch_latency_s: float = 0.0) -> tuple[RankSession, LoneBus]:
    config, bus = Config(run_dir=tmp_path), LoneBus()
    topology = Topology(0, 1, 0, 1, 0, 1, shard_size=shard_size)
    rank_gpu = SimpleNamespace(
        timer=HostTimer(),
        max_mhz=CLOCKS_MHZ[0],
        clocks_mhz=CLOCKS_MHZ,
        throttled_s=0.0,
        set_mhz=lambda mhz: None,
        drain_samples=list,
        iteration_begins=lambda iteration: None,
        operation_begin=lambda operation: None,
        operation_end=lambda operation: None,
    )
    phases = PhaseController(config, topology, bus, coordinator=None, run_recorder=None, sets_clocks=False)
    return RankSession(config, topology, bus, rank_gpu, phases, switch_latency_s, run_recorder=None), bus


def instruction(rank: RankSession, kind: Kind, takes_s: float = 0.002) -> None:
    rank.operation_begin(Operation(kind, 0))
    time.sleep(takes_s)
    rank.operation_end(Operation(kind, 0))


def test_an_iteration_that_an_exception_ends_does_not_shift_the_others(tmp_path):
    rank, bus = lone_rank(tmp_path)
    for iteration in range(6):
        rank.iteration_begin(microbatches=1, training=True)
        instruction(rank, Kind.FORWARD)
        if iteration == 2:
            continue
        instruction(rank, Kind.BACKWARD)
        rank.iteration_end()
    rank.iteration_begin(microbatches=1, training=True)

    for iteration in (0, 1, 3, 4, 5):
        begin_s, end_s = rank._measurements._bounds_s[iteration]
        assert begin_s <= rank._measurements._recorded[iteration].begin_s < end_s
    assert 2 not in rank._measurements._recorded
    trace = rank._measurements.trace(range(6), stage=0, pipeline=0)
    assert len(trace.operations) == 2
    assert [row[0] for row in bus.signals] == [0, 1, 2, 3, 4, 5]


def test_iterations_that_grow_while_they_are_profiled_are_swept_too_and_leave_no_clock_of_0_mhz(tmp_path):
    rank, _ = lone_rank(tmp_path)
    rank._phases = SimpleNamespace(
        table=None,
        plans=(),
        plan=None,
        phase=Phase.BASELINE,
        profiler=None,
        t_prime_s=0.0,
        held_version=lambda: 0,
        take=lambda round_result, iteration: None,
        profiling_due=lambda iteration: False,
        baseline_begins=lambda iteration: True,
        begins=lambda microbatches, trace: None,
    )

    def iterate(microbatches: int) -> None:
        rank.iteration_begin(microbatches, training=True)
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            for _ in range(microbatches):
                instruction(rank, kind)
        rank.iteration_end()

    for _ in range(12):
        iterate(2)
    rank._phases.profiler, rank._phases.phase = rank._profiler(), Phase.PROFILING
    for microbatches in (2, 3, 3, 1, 1, 2):
        iterate(microbatches)
    assert rank._phases.profiler.iterations == 6
    rank._collect()
    spans = rank._measurements.spans(0, stage=0)
    assert {span.frequency_mhz for span in spans if span.key is not None} == set(CLOCKS_MHZ)
    assert all(span.key is not None for span in spans)


def test_tensor_parallel_ranks_sweep_alike_whatever_each_has_measured(tmp_path):
    swept = []
    for takes_s in (0.001, 0.004):
        rank, _ = lone_rank(tmp_path, shard_size=2, switch_latency_s=0.003)
        for _ in range(12):
            rank.iteration_begin(microbatches=8, training=True)
            for kind in [Kind.FORWARD] * 8 + [Kind.BACKWARD] * 8:
                instruction(rank, kind, takes_s)
            rank.iteration_end()
        rank._collect()
        rank._least_iteration_s = 0.040  # as agreed on by all ranks
        profiler = rank._profiler()
        swept.append([profiler.next_clocks() for _ in range(10)])
    assert swept[0] == swept[1]
