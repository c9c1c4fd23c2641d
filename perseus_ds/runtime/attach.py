"""Sets a rank up at its first iteration, on all ranks or on none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import Store

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.control import CONTROL_FILE, ControlFile
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.coordination.layout import job_store
from perseus_ds.coordination.orders import OrderBox
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.phases import Resumable
from perseus_ds.coordination.plan_channel import PlanChannel
from perseus_ds.coordination.rejoin import RejoinTerms
from perseus_ds.coordination.rendezvous import Vote
from perseus_ds.coordination.resume import Hardware, ResumeData, depends_on, group_pipelines, look_up
from perseus_ds.coordination.rounds import condense, condensed_width
from perseus_ds.frontier.kernels import load_kernels, load_path_kernel
from perseus_ds.messages import PerseusError, one_line, user_message
from perseus_ds.pipeline.clocks import USUAL_JITTER
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.energy_file import EnergyFile
from perseus_ds.report.event_log import JobLog, RankLog
from perseus_ds.report.metrics_writer import MetricsWriter
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.sinks import metric_sinks
from perseus_ds.rundir import RunDirectory
from perseus_ds.runtime.beginning import AttachFailed
from perseus_ds.runtime.comeback import Comeback
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.rank_gpu import RankGpu
from perseus_ds.runtime.request_executor import RequestExecutor
from perseus_ds.runtime.session import RankSession, Subscriber
from perseus_ds.worker_process import WorkerProcess

__all__ = ["attach"]


def attach(config: Config, topology: Topology, checkpoint: Path | None = None, attempt: int = 0) -> RankSession:
    """Connect a rank to the others and to its GPU. All ranks call it at the same iteration.

    Args:
        config: This rank's configuration; all ranks use the coordinator's.
        topology: Position of this rank, as its framework counts the replicas.
        checkpoint: Folder with an earlier run's results, if any.
        attempt: Number of earlier attempts; all ranks count alike.

    Returns:
        The rank, ready for its first iteration.

    Raises:
        AttachFailed: This or another rank failed; then no rank attaches, and what was opened is closed again.
    """
    vote = Vote(job_store(), attempt)
    with ExitStack() as undo:
        try:
            if (cause := vote.rejected()) is None:
                session = _put_together(config, topology, checkpoint, vote.part, undo)
                if (cause := vote.accept(topology.world_size, config.bus_timeout_s)) is None:
                    undo.pop_all()
                    return session
        except Exception as error:
            met = PerseusError("round-overdue", timeout_s=config.bus_timeout_s) if _is_overdue(error) else error
            raise AttachFailed(vote.reject(one_line(met)) or "", met) from error
        raise AttachFailed(cause)


def _is_overdue(error: Exception) -> bool:
    """Whether other ranks have not come in time, whoever says so: the bus, the store or gloo."""
    return isinstance(error, TimeoutError | FutureTimeout | DistStoreError) or "timed out" in str(error).lower()


def _put_together(
    config: Config, topology: Topology, checkpoint: Path | None, store: Store, undo: ExitStack
) -> RankSession:
    """Return the rank; ``undo`` closes what it has opened."""
    load_path_kernel()  # before anything is measured
    stages = topology.stages
    make_bus = partial(Bus, topology, config.bus_timeout_s, partial(condense, stages=stages), condensed_width(stages))
    bus = make_bus(store=store)
    undo.callback(bus.give_up, 0.0)
    topology = bus.layout.topology
    pipelines = topology.pipelines
    config = bus.broadcast(lambda: config).result(config.bus_timeout_s)
    opened = _open(config, topology, bus, undo)
    groups = group_pipelines(opened.hardware, pipelines)
    depends = _depends(config, topology, opened.hardware, groups)
    directories = [config.run_dir, *filter(None, [checkpoint])]
    look = partial(look_up, config, directories, depends, opened.hardware)
    found: list[ResumeData] = []

    def know() -> tuple[Resumable, Mapping[str, float] | None]:
        found.extend(look())
        return found[0].known, found[0].baseline if found[0].known is Resumable.ALL else None

    known, baseline = bus.broadcast(know).result(config.bus_timeout_s)
    subscribers: list[Subscriber] = [RankLog(topology)]
    worker, coordinator, orders = WorkerProcess(), None, OrderBox()
    undo.callback(worker.close)
    if (directory := opened.directory) is not None:
        jitter_s = USUAL_JITTER * median(one.switch_latency_s for one in opened.hardware)
        coordinator = Coordinator(config, topology, directory, depends, found, groups, jitter_s, worker.call)
        orders = OrderBox(ControlFile(directory.path / CONTROL_FILE, pipelines))
        subscribers += [JobLog(config), RunRecorder(config, topology, directory, opened.gpu.describe(), baseline)]
        subscribers.append(EnergyFile(directory))
        undo.callback(orders.close)
        _greet(opened, topology, directory, known, resumes=baseline is not None)
    # One rank of each node compiles the kernels, and then all load them, before the profile is there.
    load = partial(worker.call, load_kernels)
    bus.broadcast(bus.gather(load if os.environ.get("LOCAL_RANK", "0") == "0" else lambda: None).result)
    bus.gather(load)
    if sinks := metric_sinks(config, topology, bus.is_coordinator):
        subscribers.append(MetricsWriter(sinks, pipelines, baseline and baseline["energy_j"]))
    meter = RankMeter(opened.gpu, topology)
    controller = PhaseController(config, pipelines, stages, opened.sets_clocks, known)

    def make_executor(bus: Bus, core: PhaseController, meter: RankMeter) -> RequestExecutor:
        channel = PlanChannel(bus, coordinator, topology.world_size, core.version, worker.call)
        latency_s = _shared_latency_s(opened.hardware, topology)
        return RequestExecutor(config, channel, meter, latency_s, worker)

    comeback = Comeback(_rejoin_terms(config, topology.world_size, make_bus, coordinator, look), make_executor)
    executor = make_executor(bus, controller, meter)
    return RankSession(config, bus, meter, controller, executor, orders, subscribers, comeback)


@dataclass(frozen=True)
class _Opened:
    """The resources of all ranks.

    Attributes:
        gpu: This rank's GPU.
        directory: Run directory, on the coordinating rank.
        hardware: Every rank's, in pipeline, stage, tensor-rank order.
        sets_clocks: Whether every rank may set clocks.
    """

    gpu: RankGpu
    directory: RunDirectory | None
    hardware: list[Hardware]
    sets_clocks: bool


def _open(config: Config, topology: Topology, bus: Bus, undo: ExitStack) -> _Opened:
    """Open every rank's GPU and the run directory.

    Raises:
        PerseusError: This or another rank failed.
    """
    gpu: RankGpu | None = None
    directory: RunDirectory | None = None
    failure: Exception | None = None
    try:
        gpu = RankGpu(config, topology)
        undo.callback(gpu.close)
        if bus.is_coordinator:
            directory = RunDirectory(config.run_dir)
    except Exception as error:
        failure = error
    try:
        states = bus.agree(_State(failure, gpu))
    except Exception as error:
        raise failure or error from error
    failures = sorted({state.failure for state in states if state.failure})
    if failures:
        raise failure or PerseusError("failed-elsewhere", ranks=failures[0])
    assert gpu is not None, "opened, or failed"
    hardware = [state.hardware for state in states if state.hardware]
    return _Opened(gpu, directory, hardware, all(state.sets_clocks for state in states))


class _State:
    """A rank's report to the others before any of them begins."""

    def __init__(self, failure: Exception | None, gpu: RankGpu | None) -> None:
        self.failure = str(failure) if failure else None
        self.sets_clocks = bool(gpu and gpu.sets_clocks)
        self.hardware = gpu and Hardware(
            gpu.gpu_name, gpu.driver_version, gpu.clocks_mhz, gpu.switch_latency_s, gpu.power_limit_w, gpu.modes
        )


def _rejoin_terms(
    config: Config,
    ranks: int,
    make_bus: Callable[..., Bus],
    coordinator: Coordinator | None,
    look: Callable[[], Sequence[ResumeData]],
) -> RejoinTerms:
    """Return what a rank needs to come back after a failure: to its plans, or to what the run has left so far."""

    def make_core(core: PhaseController) -> PhaseController:
        if core.table is not None:
            return core
        assert coordinator is not None, "only the coordinator makes what is broadcast"
        found = look()
        coordinator.know(found)
        return core.afresh(found[0].known)

    limit = FailureLimit(config.rejoin.attempts, config.rejoin.within_s) if coordinator else None
    return RejoinTerms(job_store(), ranks, config.bus_timeout_s, lambda store: make_bus(store=store), make_core, limit)


def _depends(
    config: Config, topology: Topology, hardware: Sequence[Hardware], groups: Sequence[int]
) -> list[dict[str, str]]:
    """Return the inputs of each pipeline group's profile."""
    size = len(hardware) // topology.pipelines
    firsts = [groups.index(number) * size for number in range(len(set(groups)))]
    return [depends_on(config, topology, hardware[first : first + size]) for first in firsts]


def _shared_latency_s(hardware: Sequence[Hardware], topology: Topology) -> float:
    """Return the longest switch latency, in seconds, among the ranks that share this rank's instructions."""
    first = (topology.pipeline * topology.stages + topology.stage) * topology.shard_size
    return max(one.switch_latency_s for one in hardware[first : first + topology.shard_size])


def _greet(opened: _Opened, topology: Topology, directory: RunDirectory, known: Resumable, resumes: bool) -> None:
    """Tell the user what matters before the first iteration."""
    log.info("%s; clocks through %s", opened.gpu.gpu_name, opened.gpu.backend_reason)
    if topology.stages == 1:
        log.warning("%s", user_message("one-stage"))
    if known is Resumable.NOTHING and not opened.sets_clocks:
        log.warning("%s", user_message("observe-no-profile"))
    if resumes:
        log.info("going on with the profile and plans of an earlier run in %s", directory.path)
