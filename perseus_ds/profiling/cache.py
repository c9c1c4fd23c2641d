"""Keeps measured profiles on disk for the next start, one file per fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perseus_ds.files import read_text
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.latencies import DELAYS
from perseus_ds.profiling.table import MOST, CurveKey, Profile, ProfilePoint, make_profile

__all__ = ["cache_path", "fingerprint", "load_profile", "store_profile"]

_PACKAGES = ("perseus_ds", "torch", "nvidia-ml-py")
_OTHERS = ("waiting_slope_w_per_mhz", "waiting_mhz", *DELAYS, "switch_latency_s")  # of a profile, beside its curves

_Clock = Annotated[int, Field(gt=0, le=100_000)]
_Number = Annotated[float, Field(ge=-MOST, le=MOST)]
_Positive = Annotated[float, Field(gt=0.0, le=MOST)]


class _Curve(BaseModel):
    """One curve on disk: rows of MHz, s, J, and the two intervals."""

    model_config = ConfigDict(extra="forbid", strict=True)
    stage: int = Field(ge=0)
    kind: Kind = Field(strict=False)
    chunk: int = Field(ge=0)
    backward_chunk: int = Field(ge=-1)
    limited: bool = False
    points: list[tuple[_Clock, _Positive, _Number, _Number, _Number]] = Field(min_length=1)


class _Entry(BaseModel):
    """A cache file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    fingerprint: dict[str, str]
    blocking_power_w: _Positive
    waiting_slope_w_per_mhz: _Number = 0.0
    waiting_mhz: _Number = 0.0
    request_stall_s: Annotated[float, Field(ge=0.0, le=MOST)] = 0.0
    switch_tail_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    switch_tail_s: Annotated[float, Field(ge=0.0, le=MOST)] = 0.0
    switch_latency_s: dict[_Clock, Annotated[float, Field(ge=0.0, le=MOST)]] = Field(default_factory=dict)
    curves: list[_Curve] = Field(min_length=1)


def fingerprint(topology: Topology, gpu_name: str, driver_version: str) -> dict[str, str]:
    """Return everything that a profile depends on, by name.

    Args:
        topology: Of any rank: the model's shape and micro-batch size, the framework, the parallel layout.
        gpu_name: NVML's name of the GPU model.
        driver_version: NVML's driver version.
    """
    axes = " ".join(f"{name} {len(ranks)}" for name, ranks in topology.axes)
    layout = f"pp{topology.stages} tp{topology.shard_size} chunks{topology.chunks} {axes}".rstrip()
    return {
        "model": topology.fingerprint,
        "layout": layout,
        "framework": topology.framework,
        "gpu": gpu_name,
        "driver": driver_version,
        **{name: _version(name) for name in _PACKAGES},
    }


def cache_path(directory: Path, depends_on: Mapping[str, str]) -> Path:
    """Return the file of the profile with this fingerprint."""
    digest = hashlib.sha256(json.dumps(dict(depends_on), sort_keys=True).encode()).hexdigest()
    return directory / f"profile-{digest[:16]}.json"


def load_profile(
    directory: Path, depends_on: Mapping[str, str], report: Callable[[str], None]
) -> tuple[Profile, float] | None:
    """Read a cached profile.

    A damaged or foreign file is reported and renamed to ``*.damaged``.

    Args:
        directory: The cache directory; may be missing.
        depends_on: Result of ``fingerprint``.
        report: Called with one line for the user.

    Returns:
        The profile and the blocking power in watts; None without a usable profile.
    """
    file = cache_path(directory, depends_on)
    try:
        entry = _Entry.model_validate_json(read_text(file, guarded=True))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        detail = f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
        _set_aside(file, "cache-damaged", detail, report)
        return None
    except OSError as error:
        report(user_message("cache-unreadable", file=file, detail=error.strerror))
        return None
    different = [name for name in depends_on if entry.fingerprint.get(name) != depends_on[name]]
    if different:
        name = different[0]
        found = entry.fingerprint.get(name, "nothing")
        detail = f"{name} is '{found}', here it is '{depends_on[name]}'"
        _set_aside(file, "cache-foreign", detail, report)
        return None
    keys = [CurveKey(one.stage, one.kind, one.chunk, one.backward_chunk) for one in entry.curves]
    rows = {key: [ProfilePoint(*p) for p in one.points] for key, one in zip(keys, entry.curves, strict=True)}
    limited = frozenset(key for key, one in zip(keys, entry.curves, strict=True) if one.limited)
    try:
        profile = replace(make_profile(rows, str(file)), limited=limited)
        others = {name: getattr(entry, name) for name in _OTHERS}
        return replace(profile, **others), entry.blocking_power_w
    except PerseusError as error:
        _set_aside(file, "cache-damaged", str(error), report)
        return None


def store_profile(
    directory: Path,
    depends_on: Mapping[str, str],
    profile: Profile,
    blocking_power_w: float,
    report: Callable[[str], None],
) -> bool:
    """Write a profile to the cache, atomically: readers see the old file or the whole new one.

    Args:
        directory: The cache directory; created if missing.
        depends_on: Result of ``fingerprint``.
        profile: The profile.
        blocking_power_w: Watts of a waiting GPU.
        report: Called with one line for the user if the write fails.

    Returns:
        Whether the write succeeded.
    """
    file = cache_path(directory, depends_on)
    curves = [
        _Curve(
            stage=key.stage,
            kind=key.kind,
            chunk=key.chunk,
            backward_chunk=key.backward_chunk,
            limited=key in profile.limited,
            points=[(p[0], p[1], p[2], p[3], p[4]) for p in points],
        )
        for key, points in profile.curves.items()
    ]
    entry = _Entry(
        fingerprint=dict(depends_on),
        blocking_power_w=blocking_power_w,
        **{name: getattr(profile, name) for name in _OTHERS},
        curves=curves,
    )
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8") as stream:
                os.fchmod(stream.fileno(), 0o644)  # what anybody may write is not read again
                stream.write(entry.model_dump_json(indent=1))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        report(user_message("cache-not-written", file=file, detail=error.strerror))
        return False
    return True


def _set_aside(file: Path, code: str, detail: str, report: Callable[[str], None]) -> None:
    aside = file.with_name(f"{file.name}.damaged")
    try:
        file.replace(aside)
    except OSError as error:
        detail = f"{detail} (and it could not be renamed: {error.strerror})"
    report(user_message(code, file=file, detail=detail, aside=aside.name))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
