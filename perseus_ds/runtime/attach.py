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
from perseus_ds.coordination.known import Hardware, Knowledge, Known, depends_on, look_up, peers_of
from perseus_ds.coordination.signals import condense, condensed_width
from perseus_ds.frontier.kernels import compile_apart
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.journal import Journal
from perseus_ds.report.meter import Meter
from perseus_ds.report.sinks import metric_sinks
from perseus_ds.rundir import RunDirectory
from perseus_ds.runtime.instrument import Instrument
from perseus_ds.runtime.pilot import Pilot
from perseus_ds.runtime.rank import Rank

__all__ = ["attach"]


def attach(config: Config, topology: Topology, checkpoint: Path | None = None) -> Rank:
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
    instrument: Instrument | None = None
    directory: RunDirectory | None = None
    failure: Exception | None = None
    try:
        instrument = Instrument(config, topology)
        if bus.is_coordinator:
            directory = RunDirectory(config.run_dir)
    except Exception as error:
        failure = error
    states = bus.agree(_State(failure, instrument))
    failures = sorted({state.failure for state in states if state.failure})
    if failures:
        if instrument is not None:
            instrument.close()
        raise failure or PerseusError("failed-elsewhere", ranks=failures[0])
    assert instrument is not None
    hardware = [state.hardware for state in states if state.hardware]
    peers, size = peers_of(hardware, topology.pipelines), len(hardware) // topology.pipelines
    firsts = [peers.index(number) * size for number in range(len(set(peers)))]
    depends = [depends_on(config, topology, hardware[first : first + size]) for first in firsts]
    found: list[Knowledge] = []

    def know() -> tuple[Known, float | None]:
        found.extend(look_up(config, [config.run_dir, *filter(None, [checkpoint])], depends, hardware))
        baseline = found[0].baseline if found[0].known is Known.ALL else None
        return found[0].known, baseline["energy_j"] if baseline else None

    known, baseline_j = bus.broadcast(know).result(config.bus_timeout_s)
    sets_clocks = all(state.sets_clocks for state in states)
    coordinator = journal = control = None
    if directory is not None:
        typical_s = median(one.switch_latency_s for one in hardware)
        coordinator = Coordinator(config, topology, directory, depends, found, peers, typical_s)
        journal = Journal(config, topology, directory, instrument.describe())
        control = ControlFile(directory.path / "control", topology.pipelines)
        log.info("%s; clocks through %s", instrument.gpu_name, instrument.backend_reason)
        if topology.stages == 1:
            log.warning("%s", user_message("one-stage"))
        if known is Known.NOTHING and not sets_clocks:
            log.warning("%s", user_message("observe-no-profile"))
        if known is Known.ALL and found[0].baseline:
            journal.resumes(found[0].baseline)
    # Every node's kernels are there, on everybody's bulk channel, before the profile is.
    bus.gather(compile_apart if os.environ.get("LOCAL_RANK", "0") == "0" else lambda: None)
    pilot = Pilot(config, topology, bus, coordinator, journal, sets_clocks, known)
    sinks = metric_sinks(config, topology, bus.is_coordinator)
    meter = Meter(sinks, topology.pipelines, baseline_j) if sinks else None
    first = (topology.pipeline * topology.stages + topology.stage) * topology.tensor_size
    shared = hardware[first : first + topology.tensor_size]
    latency_s = max(one.switch_latency_s for one in shared)
    return Rank(config, topology, bus, instrument, pilot, latency_s, journal, control, meter)


class _State:
    """What a rank tells the others before any of them begins."""

    def __init__(self, failure: Exception | None, instrument: Instrument | None) -> None:
        self.failure = str(failure) if failure else None
        self.sets_clocks = bool(instrument and instrument.sets_clocks)
        self.hardware = instrument and Hardware(
            instrument.gpu_name, instrument.driver_version, instrument.clocks_mhz, instrument.switch_latency_s
        )
