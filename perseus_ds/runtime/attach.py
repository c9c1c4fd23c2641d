"""Puts a rank together at its first iteration, on all ranks or on none."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from statistics import median

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.control import ControlFile
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.resume import Hardware, Resumable, ResumeData, depends_on, look_up, peers_of
from perseus_ds.coordination.rounds import condense, condensed_width
from perseus_ds.frontier.kernels import compile_isolated
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.metrics_writer import MetricsWriter
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.sinks import metric_sinks
from perseus_ds.rundir import RunDirectory
from perseus_ds.runtime.phase_controller import PhaseController
from perseus_ds.runtime.rank_gpu import RankGpu
from perseus_ds.runtime.session import RankSession

__all__ = ["attach"]


def attach(config: Config, topology: Topology, checkpoint: Path | None = None) -> RankSession:
    """Connect a rank to the others and to its GPU. Called by all ranks at the same iteration.

    Args:
        config: As this rank read it; the coordinator's counts on all ranks.
        topology: Where this rank stands.
        checkpoint: Folder in which an earlier run may have left what it knew.

    Returns:
        The rank, ready for its first iteration.

    Raises:
        PerseusError: This or another rank cannot: then none does.
    """
    stages = topology.stages
    bus = Bus(topology, config.bus_timeout_s, partial(condense, stages=stages), condensed_width(stages))
    config = bus.broadcast(lambda: config).result(config.bus_timeout_s)
    rank_gpu: RankGpu | None = None
    directory: RunDirectory | None = None
    failure: Exception | None = None
    try:
        rank_gpu = RankGpu(config, topology)
        if bus.is_coordinator:
            directory = RunDirectory(config.run_dir)
    except Exception as error:
        failure = error
    states = bus.agree(_State(failure, rank_gpu))
    failures = sorted({state.failure for state in states if state.failure})
    if failures:
        if rank_gpu is not None:
            rank_gpu.close()
        raise failure or PerseusError("failed-elsewhere", ranks=failures[0])
    assert rank_gpu is not None
    hardware = [state.hardware for state in states if state.hardware]
    peers, size = peers_of(hardware, topology.pipelines), len(hardware) // topology.pipelines
    firsts = [peers.index(number) * size for number in range(len(set(peers)))]
    depends = [depends_on(config, topology, hardware[first : first + size]) for first in firsts]
    found: list[ResumeData] = []

    def know() -> tuple[Resumable, float | None]:
        found.extend(look_up(config, [config.run_dir, *filter(None, [checkpoint])], depends, hardware))
        baseline = found[0].baseline if found[0].known is Resumable.ALL else None
        return found[0].known, baseline["energy_j"] if baseline else None

    known, baseline_j = bus.broadcast(know).result(config.bus_timeout_s)
    sets_clocks = all(state.sets_clocks for state in states)
    coordinator = run_recorder = control = None
    if directory is not None:
        typical_s = median(one.switch_latency_s for one in hardware)
        coordinator = Coordinator(config, topology, directory, depends, found, peers, typical_s)
        run_recorder = RunRecorder(config, topology, directory, rank_gpu.describe())
        control = ControlFile(directory.path / "control", topology.pipelines)
        log.info("%s; clocks through %s", rank_gpu.gpu_name, rank_gpu.backend_reason)
        if topology.stages == 1:
            log.warning("%s", user_message("one-stage"))
        if known is Resumable.NOTHING and not sets_clocks:
            log.warning("%s", user_message("observe-no-profile"))
        if known is Resumable.ALL and found[0].baseline:
            run_recorder.resumes(found[0].baseline)
    # Every node's kernels are there, on everybody's bulk channel, before the profile is.
    bus.gather(compile_isolated if os.environ.get("LOCAL_RANK", "0") == "0" else lambda: None)
    phases = PhaseController(config, topology, bus, coordinator, run_recorder, sets_clocks, known)
    sinks = metric_sinks(config, topology, bus.is_coordinator)
    meter = MetricsWriter(sinks, topology.pipelines, baseline_j) if sinks else None
    first = (topology.pipeline * topology.stages + topology.stage) * topology.shard_size
    shared = hardware[first : first + topology.shard_size]
    latency_s = max(one.switch_latency_s for one in shared)
    return RankSession(config, topology, bus, rank_gpu, phases, latency_s, run_recorder, control, meter)


class _State:
    """What a rank tells the others before any of them begins."""

    def __init__(self, failure: Exception | None, rank_gpu: RankGpu | None) -> None:
        self.failure = str(failure) if failure else None
        self.sets_clocks = bool(rank_gpu and rank_gpu.sets_clocks)
        self.hardware = rank_gpu and Hardware(
            rank_gpu.gpu_name, rank_gpu.driver_version, rank_gpu.clocks_mhz, rank_gpu.switch_latency_s
        )
