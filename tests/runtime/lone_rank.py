"""A rank that is alone: a real session on a bus without neighbours and a GPU that takes any clock."""

import time
from concurrent.futures import Future

import numpy as np

from perseus_ds.config import Config
from perseus_ds.coordination.orders import OrderBox
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.plan_channel import PlanChannel
from perseus_ds.coordination.rounds import condense
from perseus_ds.device.clock_statistics import ClockStatistics
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.timers import HostTimer
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.request_executor import RequestExecutor
from perseus_ds.runtime.session import RankSession

CLOCKS_MHZ = (1400, 1200)


class LoneBus:
    """A bus with nobody else on it."""

    def __init__(self) -> None:
        self.signals = []
        self.closed = False

    def post(self, row) -> Future:
        self.signals.append(row)
        future: Future = Future()
        future.set_result(condense(np.array([row]), stages=1)[None])
        return future

    def close(self) -> None:
        self.closed = True


class LoneGpu:
    """A GPU that takes any clock."""

    counter_period_s, has_keeper = 0.1, True
    unheld_latencies_s = {1200: ((0.01, 0.02),)}  # noqa: RUF012
    timer, clocks_mhz, max_mhz, throttled_s = HostTimer(), CLOCKS_MHZ, CLOCKS_MHZ[0], 0.0
    default_clocks = IterationClocks(CLOCKS_MHZ[0], locked=False)

    def __init__(self) -> None:
        self.expected_s = None
        self.asked_mhz, self.readings, self.requests, self.shown_w = [], [], [], []
        self.told, self.held_mhz, self.capped_mhz = [], 0, 0

    def set_mhz(self, mhz: int, not_before_s: float) -> None:
        self.asked_mhz.append(mhz)

    def latency_s(self, mhz: int) -> float:
        return 0.0

    def expect_latencies(self, latencies_s) -> None:
        self.expected_s = latencies_s

    def release_clocks(self) -> None:
        self.told.append(("releases", None))

    def let_go(self) -> None:
        self.told.append(("lets go", None))

    def take_clocks(self) -> None:
        self.told.append(("takes", None))

    def drain_samples(self) -> list:
        return []

    def watch_calmly(self, iteration_s: float) -> None: ...

    def iteration_begins(self, iteration: int | None) -> None:
        self.told.append(("begins", iteration))

    def iteration_ends(self) -> None:
        self.told.append(("ends", None))

    def operation_begin(self, operation: Operation) -> None:
        self.told.append(("begin", operation.kind))

    def operation_end(self, operation: Operation) -> None:
        self.told.append(("end", operation.kind))

    def close(self) -> ClockStatistics:
        return ClockStatistics()


class LoneRank:
    """A session that is alone, and all that it is made of."""

    def __init__(
        self, tmp_path, sets_clocks: bool = False, shard_size: int = 1, latency_s: float = 0.0, **config
    ) -> None:
        config, topology = Config(run_dir=tmp_path, **config), Topology(0, 1, 0, 1, 0, 1, shard_size=shard_size)
        self.bus, self.gpu, self.orders, self.events = LoneBus(), LoneGpu(), OrderBox(), []
        self.meter = RankMeter(self.gpu, topology)
        self.executor = RequestExecutor(config, PlanChannel(self.bus, None, 1), self.meter, latency_s)
        controller = PhaseController(config, 1, 1, sets_clocks)
        self.session = RankSession(
            config, self.bus, self.meter, controller, self.executor, self.orders, [self.events.append]
        )

    def runs(self, *kinds: Kind, takes_s: float = 0.002, ends: bool = True) -> None:
        """Train for one iteration."""
        self.session.iteration_begin(microbatches=len(kinds) // 2, training=True)
        for kind in kinds:
            self.works(kind, takes_s)
        if ends:
            self.session.iteration_end()

    def works(self, kind: Kind, takes_s: float) -> None:
        self.session.operation_begin(Operation(kind, 0))
        time.sleep(takes_s)
        self.session.operation_end(Operation(kind, 0))
