"""Finds earlier results: a profile given by the user, cached, or left by an earlier run of the same job."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from pathlib import Path

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.phases import Resumable
from perseus_ds.files import read_json
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.cache import fingerprint, load_profile, store_profile
from perseus_ds.profiling.table import Profile, read_profile
from perseus_ds.rundir import RunDirectory

__all__ = [
    "Hardware",
    "ResumeData",
    "copy_resume_data",
    "depends_on",
    "group_pipelines",
    "look_up",
    "numbered",
    "remember",
]

_RESUME = "resume.json"


@dataclass(frozen=True)
class Hardware:
    """One rank's GPU.

    Attributes:
        name: NVML's name of the model.
        driver_version: NVML's driver version.
        clocks_mhz: Supported clocks, descending.
        switch_latency_s: Calibrated time from a clock request to the new clock.
        power_limit_w: Power that it may draw at most.
        modes: Modes that change what instructions take and draw, such as ECC.
    """

    name: str
    driver_version: str
    clocks_mhz: tuple[int, ...]
    switch_latency_s: float
    power_limit_w: float = 0.0
    modes: str = ""


@dataclass(frozen=True)
class ResumeData:
    """The coordinator's earlier results for a pipeline group.

    Attributes:
        profile: None: not measured yet.
        blocking_power_w: None: not measured yet.
        traces: One per stage of one pipeline; empty: not measured yet.
        baseline: ``baseline`` of the earlier run's ``summary.json``; None without one.
    """

    profile: Profile | None = None
    blocking_power_w: float | None = None
    traces: tuple[StageTrace, ...] = ()
    baseline: Mapping[str, float] | None = None

    @property
    def known(self) -> Resumable:
        """The extent of the data."""
        if self.profile is None:
            return Resumable.NOTHING
        return Resumable.ALL if self.traces and self.blocking_power_w is not None else Resumable.PROFILE


def depends_on(config: Config, topology: Topology, hardware: Sequence[Hardware]) -> dict[str, str]:
    """Return all inputs of a profile, by name.

    Args:
        config: The whole configuration.
        topology: Any rank's.
        hardware: Of the ranks of one pipeline, or of several equal ones, in order.
    """
    names = [one.name for one in hardware]
    models = names[:1] if len(set(names)) == 1 else names
    found = fingerprint(topology, " + ".join(models), " + ".join(sorted({one.driver_version for one in hardware})))
    found["power limit"] = " + ".join(sorted({f"{one.power_limit_w:.0f} W" for one in hardware}))
    found["modes"] = " + ".join(sorted({one.modes for one in hardware}))
    found["highest clock"] = " + ".join(sorted({f"{one.clocks_mhz[0]} MHz" for one in hardware}))
    if config.device.restore_mhz is not None:
        found["operator's clock"] = f"{config.device.restore_mhz} MHz"
    if (simulator := config.simulator) is not None:
        found["simulator"] = f"{simulator.gpu} {simulator.profile} {simulator.stages} x{simulator.time_scale}"
    return found


def group_pipelines(hardware: Sequence[Hardware], pipelines: int) -> tuple[int, ...]:
    """Return the group number of each pipeline. A group has the same GPU models, rank by rank.

    Args:
        hardware: Every rank's, in pipeline, stage, tensor-rank order.
        pipelines: Number of pipelines.
    """
    size = len(hardware) // pipelines
    names = [one.name for one in hardware]
    models = [tuple(names[first : first + size]) for first in range(0, len(names), size)]
    different = list(dict.fromkeys(models))
    return tuple(different.index(one) for one in models)


def look_up(
    config: Config, directories: Sequence[Path], depends: Sequence[Mapping[str, str]], hardware: Sequence[Hardware]
) -> tuple[ResumeData, ...]:
    """Find the earlier results of each group; a result missing for one group is measured for all.

    Args:
        config: The whole configuration.
        directories: The run directory, and other places of an earlier run.
        depends: Result of ``depends_on`` for each group.
        hardware: Every rank's.

    Raises:
        PerseusError: The user's profile is wrong, or has clocks that a GPU lacks.
    """
    if config.profiling.profile is not None:
        profile = read_profile(config.profiling.profile)
        _check_clocks(profile, hardware, config.profiling.profile)
        return (ResumeData(profile),) * len(depends)
    found = [_find(config, directories, number, one) for number, one in enumerate(depends)]
    known = {one.known for one in found}
    if Resumable.NOTHING in known:
        return (ResumeData(),) * len(depends)
    if Resumable.PROFILE in known:
        return tuple(ResumeData(one.profile, one.blocking_power_w) for one in found)
    return tuple(found)


def remember(
    config: Config,
    directory: RunDirectory,
    number: int,
    depends: Mapping[str, str],
    profile: Profile,
    blocking_power_w: float,
) -> None:
    """Keep a group's measured profile for the next start; the run directory already has the traces."""
    for folder in filter(None, (directory.path, config.profiling.cache_dir)):
        directory.later(partial(store_profile, folder, depends, profile, blocking_power_w, log.warning))
    directory.write_json(numbered(_RESUME, number), dict(depends))


def numbered(name: str, number: int) -> str:
    """Return the file name of a group: the first has the plain name, the second ``name-2.ext``."""
    return name if number == 0 else f"{Path(name).stem}-{number + 1}{Path(name).suffix}"


def copy_resume_data(directory: Path, folder: Path) -> None:
    """Copy the files that ``look_up`` reads from a run directory; skip a checkpoint outside any file system.

    Raises:
        OSError: The folder cannot be created or written.
    """
    if not folder.parent.is_dir():
        return
    folder.mkdir(exist_ok=True)
    for pattern in ("profile-*.json", "trace*.json", "resume*.json", "summary.json"):
        for file in directory.glob(pattern):
            shutil.copyfile(file, folder / file.name)


def _find(config: Config, directories: Sequence[Path], number: int, depends: Mapping[str, str]) -> ResumeData:
    for directory in directories if config.profiling.reuse else ():
        if found := load_profile(directory, depends, log.warning):
            return ResumeData(*found, *_earlier_run(directory, number, depends))
    if config.profiling.cache_dir and (found := load_profile(config.profiling.cache_dir, depends, log.warning)):
        return ResumeData(*found)
    return ResumeData()


def _check_clocks(profile: Profile, hardware: Sequence[Hardware], file: Path) -> None:
    used = {point.frequency_mhz for points in profile.curves.values() for point in points}
    for one in hardware:
        if foreign := used.difference(one.clocks_mhz):
            raise PerseusError("profile-clock", file=file, mhz=max(foreign), gpu=one.name)


def _earlier_run(
    directory: Path, number: int, depends: Mapping[str, str]
) -> tuple[tuple[StageTrace, ...], Mapping[str, float] | None]:
    """Return traces and baseline of an earlier run of the same job, or nothing if one is missing or damaged."""
    file = directory / numbered("trace.json", number)
    try:
        if read_json(directory / numbered(_RESUME, number), guarded=True) != dict(depends):
            return (), None
        baseline = read_json(directory / "summary.json", guarded=True).get("baseline")
        traces = tuple(StageTrace.from_json(row) for row in read_json(file, guarded=True))
        _check(traces)
        _check_baseline(baseline)
    except FileNotFoundError:
        return (), None
    except (OSError, PerseusError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s", user_message("resume-damaged", file=file, detail=error))
        return (), None
    return traces, baseline


def _check_baseline(baseline: Mapping[str, float] | None) -> None:
    """Check that a baseline is one that can be.

    Raises:
        ValueError: It is not.
        KeyError, TypeError: It is none at all.
    """
    if baseline is not None and not all(0.0 < baseline[name] < inf for name in ("iteration_time_s", "energy_j")):
        raise ValueError(f"the baseline {dict(baseline)} cannot be")


def _check(traces: Sequence[StageTrace]) -> None:
    """Check that the traces are of one iteration of a whole pipeline.

    Raises:
        PerseusError: A transfer has one side only.
        ValueError: A stage has no instruction, or an operation a time that cannot be.
    """
    for trace in traces:
        if not any(timed.operation.kind.is_instruction for timed in trace.operations):
            raise ValueError(f"stage {trace.stage} has no instruction")
        if not all(isfinite(timed.end_s) and 0.0 <= timed.begin_s <= timed.end_s for timed in trace.operations):
            raise ValueError(f"stage {trace.stage} has an operation that ends before it begins")
        count = len(trace.instructions)
        if not all(len(row) == count and all(0.0 < size < inf for size in row) for row in trace.sizes):
            raise ValueError(f"stage {trace.stage} has micro-batches of no size")
    dag_from_traces(traces)
