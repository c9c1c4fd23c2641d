"""Two sessions that lose each other, on threads: both go on alone, and come back with the plan they had."""

import os
import threading
import time
from functools import partial

import pytest
import torch.distributed as dist
from lone_rank import LoneGpu
from made_up_plans import MICROBATCHES, STAGES, first_table
from rank_threads import on_ranks

from perseus_ds.config import Config
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.events import EndedForGood, JobEnded, PhaseEntered, RanksBack, RanksLost
from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.coordination.orders import OrderBox
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.phases import Phase, Resumable
from perseus_ds.coordination.plan_channel import PlanChannel
from perseus_ds.coordination.rejoin import RejoinTerms
from perseus_ds.coordination.rounds import condense, condensed_width
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime.comeback import Comeback
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.request_executor import RequestExecutor
from perseus_ds.runtime.session import RankSession

TIMEOUT_S = 2.0
CLOCKS_MHZ = (1400, 1200, 1000, 800)


class Gpu(LoneGpu):
    """A GPU with the clocks of the made-up plans, which lets nothing through while it is released."""

    clocks_mhz, max_mhz = CLOCKS_MHZ, CLOCKS_MHZ[0]
    default_clocks = IterationClocks(CLOCKS_MHZ[0], locked=False)


class Pair:
    """Two ranks of one pipeline, with a plan in force."""

    def __init__(self, tmp_path, attempts: int = 3, planned: bool = True) -> None:
        self.store, self.barrier = dist.HashStore(), threading.Barrier(STAGES)
        self.config = Config(run_dir=tmp_path, bus_timeout_s=TIMEOUT_S, warmup_iterations=1, baseline_iterations=1)
        self.limit = FailureLimit(attempts, 3600.0)
        self.events: list[list] = [[] for _ in range(STAGES)]
        self.alone: list[list[int]] = [[] for _ in range(STAGES)]
        self.clocks: list[list[IterationClocks]] = [[] for _ in range(STAGES)]
        self.planned = planned
        self.sessions = on_ranks(STAGES, self._session)

    def _session(self, rank: int) -> RankSession:
        topology = Topology(rank, STAGES, 0, 1, rank, STAGES)
        make_bus = partial(Bus, topology, TIMEOUT_S, partial(condense, stages=STAGES), condensed_width(STAGES))
        bus, core = make_bus(store=self.store), PhaseController(self.config, 1, STAGES, sets_clocks=True)
        if self.planned:
            core._adopt(first_table(1), 0)
        meter = RankMeter(Gpu(), topology)
        begins = meter.iteration_begins

        def executor(bus: Bus, core: PhaseController, meter: RankMeter) -> RequestExecutor:
            return RequestExecutor(self.config, PlanChannel(bus, None, STAGES, core.version), meter, 0.0)

        def make_core(core: PhaseController) -> PhaseController:
            return core if core.table else core.afresh(Resumable.NOTHING)

        terms = RejoinTerms(
            self.store,
            STAGES,
            TIMEOUT_S,
            lambda store: make_bus(store=store),
            make_core,
            None if rank else self.limit,
        )
        clocks = self.clocks[rank]
        meter.iteration_begins = lambda number, at_s, given, *more: (
            clocks.append(given),
            begins(number, at_s, given, *more),
        )
        return RankSession(
            self.config,
            bus,
            meter,
            core,
            executor(bus, core, meter),
            OrderBox(),
            [self.events[rank].append],
            Comeback(terms, executor),
        )

    def lives(self, rank: int, iterations: int, pause_at: int = -1, error_at: int = -1) -> None:
        """Train as the listener lets a rank do; all ranks end an iteration together."""
        session = self.sessions[rank]
        for iteration in range(iterations):
            if iteration == pause_at:
                time.sleep(2.0 * TIMEOUT_S)
            try:
                session.iteration_begin(MICROBATCHES, training=True)
                if iteration == error_at:
                    raise ValueError("a bug")
            except Exception as error:
                if not session.pause(error):
                    return
                session.begin_alone()
            for kind in (Kind.FORWARD, Kind.BACKWARD) * MICROBATCHES:
                session.operation_begin(Operation(kind, 0))
                session.operation_end(Operation(kind, 0))
            session.iteration_end()
            time.sleep(0.1)
            self.barrier.wait(60.0)

    def of(self, rank: int, *kinds: type) -> list:
        return [event for event in self.events[rank] if isinstance(event, kinds)]


def test_after_a_pause_of_one_rank_both_have_the_plan_again_at_the_same_iteration(tmp_path):
    pair = Pair(tmp_path)
    on_ranks(STAGES, lambda rank: pair.lives(rank, 16, pause_at=5 if rank else -1))
    backs = [pair.of(rank, RanksBack) for rank in range(STAGES)]
    assert backs[0] == backs[1]
    assert 5 < backs[0][0].iteration <= 5 + 5
    for rank in range(STAGES):
        lost, back, *_ = pair.of(rank, RanksLost, RanksBack)
        assert lost.cause.endswith("[round-overdue]")
        planned = [bool(clocks.planned_mhz) for clocks in pair.clocks[rank]]
        alone = range(lost.iteration, back.iteration)
        assert [at for at, has_plan in enumerate(planned) if not has_plan] == list(alone)
        assert pair.of(rank, PhaseEntered)[-1].phase is Phase.ENFORCING
        assert [what for what, _ in pair.sessions[rank]._meter.gpu.told if what in ("releases", "takes")] == [
            "releases",
            "takes",
        ]
    # Rounds go on where they were: no rank takes a past iteration for the present one.
    heard = [str(session._round.result(TIMEOUT_S)) for session in pair.sessions]
    assert heard[0] == heard[1]


def held() -> tuple[int, int]:
    """Return the number of this process's threads and open files."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def test_together_again_nothing_is_left_of_the_old_bus(tmp_path):
    pair = Pair(tmp_path)
    threads, files = held()
    on_ranks(STAGES, lambda rank: pair.lives(rank, 16, pause_at=5 if rank else -1))
    assert pair.of(0, RanksBack)
    deadline_s = time.monotonic() + 10.0
    while held()[0] > threads or held()[1] > files:
        assert time.monotonic() < deadline_s, f"{held()}, not {threads, files}"
        time.sleep(0.1)


def test_the_release_of_an_old_bus_ends_with_the_session(tmp_path, monkeypatch):
    """A thread that the interpreter ends within torch aborts the process."""
    monkeypatch.setattr(Bus, "release", lambda bus: False)  # a call hangs there for ever
    pair = Pair(tmp_path)
    on_ranks(STAGES, lambda rank: pair.lives(rank, 16, pause_at=5 if rank else -1))
    assert pair.of(0, RanksBack)

    def releasing() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "perseus_ds-rejoin"]

    assert len(releasing()) == STAGES
    for session in pair.sessions:
        session.close()
    assert releasing() == []


def test_an_error_of_one_rank_pauses_both_and_its_measurements_begin_anew(tmp_path):
    pair = Pair(tmp_path)
    meters = [session._meter for session in pair.sessions]
    on_ranks(STAGES, lambda rank: pair.lives(rank, 16, error_at=5 if rank else -1))
    assert pair.of(0, RanksBack) == pair.of(1, RanksBack) != []
    assert "rank 1" in pair.of(0, RanksLost)[0].cause
    assert pair.of(1, RanksLost)[0].cause == "ValueError: a bug"
    assert [session._meter is before for session, before in zip(pair.sessions, meters, strict=True)] == [True, False]


def test_without_plans_they_begin_anew(tmp_path):
    pair = Pair(tmp_path, planned=False)
    on_ranks(STAGES, lambda rank: pair.lives(rank, 8, error_at=0 if rank else -1))
    (back,) = pair.of(0, RanksBack)
    phases = [(event.iteration, event.phase) for event in pair.of(1, PhaseEntered)]
    assert (
        phases[-3:]
        == [
            (back.iteration, Phase.WARMUP),
            (back.iteration + 1, Phase.BASELINE),
            (back.iteration + 2, Phase.PROFILING),
        ][: len(phases[-3:])]
    )


def test_once_too_often_it_ends_for_good_on_both(tmp_path):
    pair = Pair(tmp_path, attempts=0)
    coordinator, other = pair.sessions
    assert not coordinator.pause(ValueError("a bug"))
    assert pair.of(0, EndedForGood) == [EndedForGood(-1, "ValueError: a bug")]
    assert other.pause(PerseusError("round-overdue", timeout_s=TIMEOUT_S))

    def go_on() -> None:
        for _ in range(1000):
            other.iteration_begin(MICROBATCHES, training=True)
            time.sleep(0.01)

    with pytest.raises(PerseusError, match="a bug"):
        go_on()
    assert not other.pause(ValueError("another"))
    for session in pair.sessions:
        session.close()
    assert [len(pair.of(rank, JobEnded)) for rank in range(STAGES)] == [1, 1]


def test_a_rank_that_is_told_to_end_lets_its_gpu_go_at_once_and_ends_it_for_all_with_its_next_iteration(tmp_path):
    pair = Pair(tmp_path)
    other, told = pair.sessions
    told.told_to_end()
    assert ("lets go", None) in told._meter.gpu.told
    with pytest.raises(PerseusError) as ended:
        told.iteration_begin(MICROBATCHES, training=True)
    assert not told.pause(ended.value)
    assert other.pause(PerseusError("failed-elsewhere", ranks="rank 1"))

    def go_on() -> None:
        for _ in range(1000):
            other.iteration_begin(MICROBATCHES, training=True)
            time.sleep(0.01)

    with pytest.raises(PerseusError, match="told-to-end"):
        go_on()
    for session in pair.sessions:
        session.close()
