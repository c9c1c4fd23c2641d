"""One rank under Perseus: at the begin of every iteration it collects, hears the others, decides, reports, acts.

Every decision follows from values that all ranks share, so all ranks take it at the same iteration. A measurement of
iteration i is posted at the begin of i + 1 and takes effect at the begin of i + 2. The bus has a whole iteration for
its work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.decision import Decision, IterationInput
from perseus_ds.coordination.events import (
    CheckpointSaved,
    EndedForGood,
    Event,
    JobEnded,
    OrderSent,
    PlansAdopted,
    RanksBack,
    RanksLost,
)
from perseus_ds.coordination.failure import concerns_all
from perseus_ds.coordination.guard import cautious_mhz
from perseus_ds.coordination.orders import Order, OrderBox
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.rounds import RankStatus, RoundResult
from perseus_ds.messages import PerseusError, one_line
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.runtime.comeback import Comeback
from perseus_ds.runtime.energy_split import EnergySplit
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.refreshed_baseline import RefreshedBaseline
from perseus_ds.runtime.request_executor import RequestExecutor

__all__ = ["RankSession", "Subscriber"]

_BUS_IS_SILENT = ("failed-elsewhere", "round-overdue")
# So many iterations of the first plan have their switches timed; then the GPU is read calmly.
_TIMING = 12

Subscriber = Callable[[Event], None]
"""Receives every event, in order, on the trainer thread; must not wait."""


class RankSession:
    """One rank from its first iteration on.

    The trainer thread calls its methods; they never wait for the GPU.

    Args:
        config: The whole configuration, the same on all ranks.
        bus: This rank's end of the control bus.
        meter: Measures and sets the clocks.
        controller: Decides.
        executor: Carries out the controller's requests.
        orders: Orders of the program, and on the coordinating rank of an operator.
        subscribers: Writers of log, files and metrics.
        comeback: The way back after a failure; None: there is none.
    """

    def __init__(
        self,
        config: Config,
        bus: Bus,
        meter: RankMeter,
        controller: PhaseController,
        executor: RequestExecutor,
        orders: OrderBox,
        subscribers: Sequence[Subscriber] = (),
        comeback: Comeback | None = None,
    ) -> None:
        self._config = config
        self._topology = meter.topology
        self._bus = bus
        self._meter = meter
        self._controller = controller
        self._executor = executor
        self._orders = orders
        self._subscribers = subscribers
        self._comeback = comeback
        self._energy_split = EnergySplit(config.report.energy_every, executor.switch_latency_s, executor.call)
        self._refreshed = RefreshedBaseline(executor.switch_latency_s, executor.call)
        self._iteration = -1
        self._first = 0
        self._round: Future[np.ndarray] | None = None
        self._waited_s = 0.0
        self._sent: Order | None = None
        self._calm_at = -1
        self._told_to_end = False

    def place(self, order: Order) -> None:
        """Send an order to all ranks with one of the next rounds."""
        self._orders.place(order)

    def save(self, folder: Path) -> None:
        """Store the data for a later run in a checkpoint's folder."""
        self._emit(CheckpointSaved(folder))

    def iteration_begin(self, microbatches: int, training: bool) -> None:
        """Close the previous iteration, decide on this one, and request its first clock.

        Raises:
            PerseusError: Another rank has failed, an answer of the bus is overdue, or this process is to end.
        """
        if self._told_to_end:
            raise PerseusError("told-to-end")
        now_s = time.monotonic()
        self._meter.iteration_over(now_s)
        if not training:
            self._meter.evaluation_begins()
            return
        self._iteration += 1
        self._meter.gpu.iteration_begins(self._iteration)
        if self._comeback is not None and self._comeback.under_way and not self._comes_back(self._comeback):
            self.begin_alone()
            return
        self._collect()
        seen = IterationInput(self._iteration, microbatches, self._read_round(), self._executor.channel.collect())
        status = self._status()
        decision = self._controller.decide(seen)
        self._emit(*decision.events)
        told = self._bus, self._meter, self._executor.found
        self._emit(*self._energy_split.begins(self._iteration, decision.phase, *told))
        self._emit(*self._refreshed.begins(self._iteration, decision.phase, self._controller.table, *told))
        self._act(decision, status, now_s)

    def begin_alone(self) -> None:
        """Begin the iteration without the others, at the default clocks."""
        self._meter.collect()
        self._meter.forget(self._iteration)
        self._meter.iteration_begins(self._iteration, time.monotonic(), self._meter.gpu.default_clocks)

    def operation_begin(self, operation: Operation) -> None:
        """Mark the operation's begin."""
        self._meter.operation_begin(operation)

    def operation_end(self, operation: Operation) -> None:
        """Mark the operation's end; the next clock is requested once the device reaches it."""
        self._meter.operation_end(operation)

    def iteration_end(self) -> None:
        """Mark the schedule's end."""
        self._meter.iteration_end()

    def told_to_end(self) -> None:
        """This process will end soon: reset the clocks at once and for good. The next iteration ends Perseus."""
        self._told_to_end = True
        self._meter.gpu.let_go()

    def pause(self, error: Exception) -> bool:
        """Leave the others after a failure: reset the clocks, and go on alone until all ranks come back.

        Args:
            error: The failure.

        Returns:
            False if this ends Perseus for good; then ``close`` has to follow.
        """
        gpu, cause = self._meter.gpu, one_line(error)
        gpu.release_clocks()
        if not (isinstance(error, PerseusError) and error.code in _BUS_IS_SILENT):
            self._bus.post(RankStatus(self._iteration, failed=1.0 + self._topology.rank).row())
        if not concerns_all(error):  # whatever it was: what it has left behind is not used any more
            self._meter = RankMeter(gpu, self._topology)
        self._bus.close()
        overdue = isinstance(error, PerseusError) and error.code == "round-overdue"
        patience_s = 0.0 if overdue else self._config.bus_timeout_s
        left = self._bus, self._controller, self._iteration
        if self._told_to_end and self._comeback is not None:
            self._comeback.call_off(cause)
            self._comeback = None
        lasts = self._comeback is None or not self._comeback.leave(*left, patience_s, cause)
        self._emit((EndedForGood if lasts else RanksLost)(self._iteration, cause))
        return not lasts

    def close(self) -> None:
        """Reset the clocks and finish writing."""
        clocks = self._meter.gpu.close()
        self._orders.close()
        self._bus.close()
        if self._comeback is not None:
            self._comeback.close()
        self._executor.close()
        self._emit(JobEnded(self._controller.phase, clocks.to_json()))

    def _comes_back(self, comeback: Comeback) -> bool:
        """Return whether all ranks go on together with this iteration; then take the new bus, and the common core."""
        if (offer := comeback.begins(self._iteration)) is None:
            return False
        self._bus, self._controller, self._round = offer.bus, offer.core, None
        self._executor = comeback.executor(offer, self._meter)
        self._first = self._iteration
        self._energy_split.forget()
        self._refreshed.forget()
        self._meter.gpu.take_clocks()
        self._emit(RanksBack(self._iteration))
        return True

    def _collect(self) -> None:
        """Read the measurements since the last iteration."""
        self._meter.collect()
        needed = self._first + self._config.warmup_iterations + self._config.baseline_iterations
        profiles = self._executor.profiler is not None and self._controller.table is None
        if not profiles and self._iteration > needed:
            self._meter.forget(self._iteration)

    def _read_round(self) -> RoundResult | None:
        """Return the result of the previous round."""
        if self._round is None:
            return None
        begin_s, timeout_s = time.monotonic(), self._config.bus_timeout_s
        try:
            rows = self._round.result(timeout_s)
        except Exception as error:
            raise PerseusError("round-overdue", timeout_s=timeout_s) from error
        round_result = RoundResult(rows, self._topology.stages)
        self._waited_s = time.monotonic() - begin_s
        self._orders.heard(round_result.orders)
        return round_result

    def _status(self) -> RankStatus:
        """Return this rank's status for the iteration that has just ended."""
        ended, meter, profiler = self._iteration - 1, self._meter, self._executor.profiler
        energy_j = meter.measurements.energy_j(ended - 1)
        health = meter.health(self._controller.table)
        log.debug("rank %d: iteration %d: used %.3f J", self._topology.rank, ended - 1, energy_j)
        status = RankStatus(
            iteration=ended,
            iteration_time_s=meter.measurements.time_s(ended),
            energy_j=energy_j,
            version=self._executor.channel.version,
            profiled=float(profiler is not None and profiler.done),
            switches=meter.switches,
            late_switches=meter.late_switches,
            share_at_clock=meter.share_at_clock,
            waited_s=self._waited_s,
            keeperless=float(not meter.gpu.has_keeper),
            slowdown=health.slowdown,
            throttled_s=meter.gpu.throttled_s,
            ceiling=-health.ceiling_mhz or -math.inf,
        )
        if (order := self._orders.top()) is None:
            return status
        if order is not self._sent:
            self._sent = order
            self._emit(OrderSent(self._iteration, order))
        return status.with_order(order)

    def _emit(self, *events: Event) -> None:
        for event in events:
            for subscriber in self._subscribers:
                subscriber(event)

    def _act(self, decision: Decision, status: RankStatus, now_s: float) -> None:
        """Post this rank's status, pass on the requests, and begin the iteration."""
        if self._iteration > 0:
            self._round = self._bus.post(status.row())
        for event in decision.events:
            if isinstance(event, PlansAdopted):  # all is profiled
                self._calm_at = self._iteration + _TIMING
                self._meter.gpu.expect_latencies(event.table.of(self._topology.pipeline).switch_latency_s)
        if self._iteration == self._calm_at and self._controller.table is not None:
            self._meter.gpu.watch_calmly(self._controller.table.max_time_s)
        for request in decision.requests:
            self._executor.execute(request, self._iteration)
        self._meter.iteration_begins(self._iteration, now_s, self._clocks(decision), partial(self._begins_s, decision))

    def _begins_s(self, decision: Decision) -> Sequence[float]:
        """Return when this rank's instructions begin, as planned; empty where the plan does not tell."""
        table = self._controller.table
        if table is None or not decision.plans or decision.caution:
            return ()
        own = self._topology.pipeline
        return table.of(own).begins_s(decision.plans[own], self._topology.stage)

    def _clocks(self, decision: Decision) -> IterationClocks:
        """Return the clocks of the iteration that begins."""
        if decision.phase is Phase.PROFILING and self._executor.profiler is not None:
            return self._executor.profiler.next_clocks()
        gpu = self._meter.gpu
        if not decision.plans:
            return gpu.default_clocks
        plan, stage = decision.plans[self._topology.pipeline], self._topology.stage
        planned = plan.clocks_mhz[stage].values()
        if caution := decision.caution:
            return IterationClocks(gpu.max_mhz, tuple(cautious_mhz(mhz, gpu.clocks_mhz, caution) for mhz in planned))
        return IterationClocks(gpu.max_mhz, tuple(planned), rest_mhz=plan.rest_mhz, aims_s=plan.aims_of(stage))
