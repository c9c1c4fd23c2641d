"""One rank's iterations, when an exception ends one of them and the user's loop goes on."""

import time
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np

from perseus_ds.config import Config
from perseus_ds.coordination.signals import condense
from perseus_ds.pipeline.events import Operation, OperationKind, Topology
from perseus_ds.profiling.timers import HostTimer
from perseus_ds.runtime.pilot import Pilot
from perseus_ds.runtime.rank import Rank

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


def lone_rank(tmp_path) -> tuple[Rank, LoneBus]:
    config, topology, bus = Config(run_dir=tmp_path), Topology(0, 1, 0, 1, 0, 1), LoneBus()
    instrument = SimpleNamespace(
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
    pilot = Pilot(config, topology, bus, coordinator=None, journal=None, sets_clocks=False)
    return Rank(config, topology, bus, instrument, pilot, journal=None), bus


def instruction(rank: Rank, kind: OperationKind) -> None:
    rank.operation_begin(Operation(kind, 0))
    time.sleep(0.002)
    rank.operation_end(Operation(kind, 0))


def test_an_iteration_that_an_exception_ends_does_not_shift_the_others(tmp_path):
    rank, bus = lone_rank(tmp_path)
    for iteration in range(6):
        rank.iteration_begin(microbatches=1, training=True)
        instruction(rank, OperationKind.FORWARD)
        if iteration == 2:
            continue
        instruction(rank, OperationKind.BACKWARD)
        rank.iteration_end()
    rank.iteration_begin(microbatches=1, training=True)

    for iteration in (0, 1, 3, 4, 5):
        begin_s, end_s = rank._measurements._bounds_s[iteration]
        assert begin_s <= rank._measurements._recorded[iteration].begin_s < end_s
    assert 2 not in rank._measurements._recorded
    trace = rank._measurements.trace(range(6), stage=0, pipeline=0)
    assert len(trace.operations) == 2
    assert [row[0] for row in bus.signals] == [0, 1, 2, 3, 4, 5]
