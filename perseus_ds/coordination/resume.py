"""What need not be measured any more: a profile given, cached, or left by an earlier run of the same job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.cache import fingerprint, load_profile, store_profile
from perseus_ds.profiling.table import Profile, read_profile
from perseus_ds.rundir import RunDirectory

__all__ = [
    "Hardware",
    "Resumable",
    "ResumeData",
    "copy_resume_data",
    "depends_on",
    "look_up",
    "numbered",
    "peers_of",
    "remember",
]

_RESUME = "resume.json"


class Resumable(Enum):
    """How much need not be measured any more."""

    NOTHING = "nothing"
    PROFILE = "profile"
    ALL = "all"  # traces and baseline too


@dataclass(frozen=True)
class Hardware:
    """One rank's GPU.

    Attributes:
        name: NVML's name of the model.
        driver_version: NVML's driver version.
        clocks_mhz: Supported clocks, descending.
        switch_latency_s: Calibrated time from a clock request to the new clock.
    """

    name: str
    driver_version: str
    clocks_mhz: tuple[int, ...]
    switch_latency_s: float


@dataclass(frozen=True)
class ResumeData:
    """What the coordinator has found of some peers.

    Attributes:
        profile: None: to be measured.
        blocking_power_w: None: to be measured.
        traces: One per stage of one pipeline; empty: to be measured.
        baseline: ``baseline`` of the earlier run's ``summary.json``; None without one.
    """

    profile: Profile | None = None
    blocking_power_w: float | None = None
    traces: tuple[StageTrace, ...] = ()
    baseline: Mapping[str, float] | None = None

    @property
    def known(self) -> Resumable:
        """How much it is."""
        if self.profile is None:
            return Resumable.NOTHING
        return Resumable.ALL if self.traces and self.blocking_power_w is not None else Resumable.PROFILE


def depends_on(config: Config, topology: Topology, hardware: Sequence[Hardware]) -> dict[str, str]:
    """Return all that a profile depends on, by name.

    Args:
        config: The whole configuration.
        topology: Any rank's.
        hardware: Of the ranks of one pipeline, or of all pipelines alike, in order.
    """
    names = [one.name for one in hardware]
    models = names[:1] if len(set(names)) == 1 else names
    found = fingerprint(topology, " + ".join(models), " + ".join(sorted({one.driver_version for one in hardware})))
    if (simulator := config.simulator) is not None:
        found["simulator"] = f"{simulator.profile} {simulator.stages} x{simulator.time_scale}"
    return found


def peers_of(hardware: Sequence[Hardware], pipelines: int) -> tuple[int, ...]:
    """Return by pipeline the number of its peers: pipelines with the same GPU models, rank by rank.

    Args:
        hardware: Every rank's, in pipeline, stage, tensor-rank order.
        pipelines: How many there are.
    """
    size = len(hardware) // pipelines
    names = [one.name for one in hardware]
    models = [tuple(names[first : first + size]) for first in range(0, len(names), size)]
    different = list(dict.fromkeys(models))
    return tuple(different.index(one) for one in models)


def look_up(
    config: Config, directories: Sequence[Path], depends: Sequence[Mapping[str, str]], hardware: Sequence[Hardware]
) -> tuple[ResumeData, ...]:
    """Find what an earlier run or the user has left of each peers; what is missing of one is measured of all.

    Args:
        config: The whole configuration.
        directories: The run directory, and where else an earlier run may have left something.
        depends: What ``depends_on`` returned for each peers.
        hardware: Every rank's.

    Raises:
        PerseusError: The profile given by the user is wrong, or has clocks that a GPU lacks.
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
    """Keep the measured profile of some peers for the next start; the run directory has the traces already."""
    for folder in filter(None, (directory.path, config.profiling.cache_dir)):
        directory.later(partial(store_profile, folder, depends, profile, blocking_power_w, log.warning))
    directory.write_json(numbered(_RESUME, number), dict(depends))


def numbered(name: str, number: int) -> str:
    """Return the file name of some peers: that of the first is the plain one, the second ones' ``name-2.ext``."""
    return name if number == 0 else f"{Path(name).stem}-{number + 1}{Path(name).suffix}"


def copy_resume_data(directory: Path, folder: Path) -> None:
    """Copy from a run directory what ``look_up`` finds; nothing for a checkpoint that is in no file system.

    Raises:
        OSError: The folder cannot be made or written to.
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
    """Return traces and baseline of an earlier run of the same job; nothing where one is missing or damaged."""
    try:
        if _read(directory / numbered(_RESUME, number)) != dict(depends):
            return (), None
        traces = tuple(StageTrace.from_json(row) for row in _read(directory / numbered("trace.json", number)))
        baseline = _read(directory / "summary.json").get("baseline")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return (), None
    return traces, baseline


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
