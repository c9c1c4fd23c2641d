"""The profile table: time and energy of every instruction kind at every frequency.

The file is the CSV of Zeus and Perseus: ``stage,instruction,frequency,time,energy`` in MHz, seconds and joules of one
GPU. The columns ``chunk``, ``backward_chunk``, ``time_ci_s`` and ``energy_ci_j`` are optional, others are ignored.
Rows of equal frequency are averaged. Zeus and lowtime can read a file with forwards and backwards only.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from perseus_ds.files import open_text
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind

__all__ = [
    "MOST",
    "CurveKey",
    "Profile",
    "ProfilePoint",
    "make_profile",
    "read_profile",
    "split_chunks",
    "write_profile",
]

_REQUIRED = ("stage", "instruction", "frequency", "time", "energy")
_OPTIONAL = ("chunk", "time_ci_s", "energy_ci_j")
_JOINT = "backward_chunk"
MOST = 1e12
"""Highest time in s and energy in J: sums of more are no numbers any more."""


class CurveKey(NamedTuple):
    """Identity of a measured curve: one kind of instruction of one chunk, for all micro-batches.

    Attributes:
        stage: Pipeline stage.
        kind: Kind of the instruction.
        chunk: Model chunk; of a joint instruction the forward's.
        backward_chunk: Model chunk of a joint instruction's backward, else -1.
    """

    stage: int
    kind: Kind
    chunk: int = 0
    backward_chunk: int = -1

    @classmethod
    def of(cls, instruction: Instruction) -> CurveKey:
        """Return the curve of ``instruction``."""
        return cls(instruction.stage, instruction.kind, instruction.chunk, instruction.backward_chunk)

    def __str__(self) -> str:
        joint = f" and {self.backward_chunk}" if self.kind.is_joint else ""
        return f"{self.kind.value} of stage {self.stage}, chunk {self.chunk}{joint}"


class ProfilePoint(NamedTuple):
    """One instruction at one frequency.

    Attributes:
        frequency_mhz: SM clock.
        time_s: Duration.
        energy_j: Energy of one GPU over that duration.
        time_ci_s: Half width of the 95 % confidence interval of the duration.
        energy_ci_j: Half width of the 95 % confidence interval of the energy.
    """

    frequency_mhz: int
    time_s: float
    energy_j: float
    time_ci_s: float = 0.0
    energy_ci_j: float = 0.0


@dataclass(frozen=True)
class Profile:
    """Measured curves of a pipeline.

    Attributes:
        curves: Points of each curve, by frequency descending, one per frequency.
        source: Origin, for messages.
        waiting_slope_w_per_mhz: How much more power a GPU takes for each MHz while it waits.
        waiting_mhz: The clock that the blocking power belongs to.
        request_stall_s: For how long a working GPU stands still for each clock request.
        switch_tail_share: Share of the clock requests that take far longer than the others to the same clock.
        switch_tail_s: Their mean additional time, exponentially distributed.
        switch_latency_s: Usual time from a request to each clock in MHz, where it is known.
        limited: Curves whose highest clock no GPU holds at its power limit: their time there grows as GPUs warm up.
    """

    curves: Mapping[CurveKey, tuple[ProfilePoint, ...]]
    source: str = "profile"
    waiting_slope_w_per_mhz: float = 0.0
    waiting_mhz: float = 0.0
    request_stall_s: float = 0.0
    switch_tail_share: float = 0.0
    switch_tail_s: float = 0.0
    switch_latency_s: Mapping[int, float] = field(default_factory=dict)
    limited: frozenset[CurveKey] = frozenset()

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return 1 + max(key.stage for key in self.curves)

    @property
    def chunks(self) -> int:
        """Number of model chunks (virtual stages) per stage."""
        return 1 + max(max(key.chunk, key.backward_chunk) for key in self.curves)

    def curve(self, key: CurveKey) -> tuple[ProfilePoint, ...]:
        """Return the points of one curve.

        Raises:
            PerseusError: The profile has none.
        """
        if key not in self.curves:
            raise PerseusError("profile-missing-curve", file=self.source, curve=key)
        return self.curves[key]


def make_profile(rows: Mapping[CurveKey, list[ProfilePoint]], source: str = "profile") -> Profile:
    """Build a profile: average equal frequencies, sort, and check for missing curves.

    Args:
        rows: Measured points of each curve, in any order, with repeated frequencies or without.
        source: Origin, for messages.

    Raises:
        PerseusError: A stage or chunk up to the highest one lacks its forward or its backward.
    """
    if not rows:
        raise PerseusError("profile-empty", file=source)
    profile = Profile({key: _one_per_frequency(points) for key, points in sorted(rows.items())}, source)
    passes = {(key.stage, key.chunk, Kind.FORWARD) for key in profile.curves if key.kind.computes_forward}
    passes |= {
        (key.stage, key.backward_chunk if key.kind.is_joint else key.chunk, Kind.BACKWARD)
        for key in profile.curves
        if key.kind.computes_backward
    }
    for stage in range(profile.stages):
        for chunk in range(profile.chunks):
            for kind in (Kind.FORWARD, Kind.BACKWARD):
                if (stage, chunk, kind) not in passes:
                    raise PerseusError("profile-missing-curve", file=source, curve=CurveKey(stage, kind, chunk))
    return profile


def split_chunks(profile: Profile, chunks: int) -> Profile:
    """Return the profile of an interleaved pipeline whose chunks share each stage's work evenly.

    Raises:
        PerseusError: ``chunks`` is below 1, or differs from the chunks in the profile.
    """
    if chunks < 1:
        raise PerseusError("plan-bad-value", name="chunks", value=chunks, allowed="whole numbers from 1")
    if profile.chunks == chunks:
        return profile
    if profile.chunks != 1:
        raise PerseusError("plan-bad-value", name="chunks", value=chunks, allowed=f"{profile.chunks}, as profiled")
    curves = {
        key._replace(chunk=chunk): tuple(
            ProfilePoint(p.frequency_mhz, *(value / chunks for value in p[1:])) for p in points
        )
        for chunk in range(chunks)
        for key, points in profile.curves.items()
    }
    return replace(profile, curves=curves)


def read_profile(path: str | Path) -> Profile:
    """Read a profile CSV.

    Args:
        path: File with the columns ``stage,instruction,frequency,time,energy`` in any order.

    Raises:
        PerseusError: One line with the file, the row, the column, and the allowed values.
    """
    file = Path(path)
    rows: dict[CurveKey, list[ProfilePoint]] = {}
    try:
        with open_text(file, "utf-8-sig", newline="") as stream:
            for key, point in _parse(file, csv.reader(stream)):
                rows.setdefault(key, []).append(point)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        detail = error.strerror if isinstance(error, OSError) else error
        raise PerseusError("profile-unreadable", file=file, detail=detail) from error
    return make_profile(rows, str(file))


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile CSV, atomically: readers see the old file or the whole new one."""
    file = Path(path)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        joint = any(key.kind.is_joint for key in profile.curves)
        writer.writerow((*_REQUIRED, *_OPTIONAL, *[_JOINT] * joint))
        for key, points in profile.curves.items():
            partner = [key.backward_chunk if key.kind.is_joint else ""] * joint
            for point in points:
                row = (key.stage, key.kind.value, *point[:3], key.chunk, point.time_ci_s, point.energy_ci_j)
                writer.writerow((*row, *partner))
    temporary.replace(file)


def _one_per_frequency(points: list[ProfilePoint]) -> tuple[ProfilePoint, ...]:
    groups: dict[int, list[ProfilePoint]] = {}
    for point in points:
        groups.setdefault(point.frequency_mhz, []).append(point)
    return tuple(_mean(groups[frequency]) for frequency in sorted(groups, reverse=True))


def _mean(points: list[ProfilePoint]) -> ProfilePoint:
    if len(points) == 1:
        return points[0]
    _, times, energies, time_cis, energy_cis = zip(*points, strict=True)
    count = len(points)
    return ProfilePoint(
        points[0].frequency_mhz,
        math.fsum(times) / count,
        math.fsum(energies) / count,
        math.sqrt(sum(ci * ci for ci in time_cis)) / count,
        math.sqrt(sum(ci * ci for ci in energy_cis)) / count,
    )


def _parse(file: Path, reader: Iterator[list[str]]) -> Iterator[tuple[CurveKey, ProfilePoint]]:
    """Yield the rows of a CSV, checking every cell."""
    header = [name.strip().lower() for name in next(reader, [])]
    if not any(header):
        raise PerseusError("profile-empty", file=file)
    for name in _REQUIRED:
        if name not in header:
            raise PerseusError("profile-missing-column", file=file, column=name)
    column = {name: header.index(name) for name in (*_REQUIRED, *_OPTIONAL, _JOINT) if name in header}
    needed = 1 + max(column.values())
    for number, cells in enumerate(reader, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) < needed:
            raise PerseusError("profile-short-row", file=file, row=number, found=len(cells), needed=needed)
        row = {name: cells[index].strip() for name, index in column.items()}
        yield (
            _key(file, number, row),
            ProfilePoint(
                _whole(file, number, row, "frequency", 1, 100_000),
                _real(file, number, row, "time", positive=True),
                _real(file, number, row, "energy"),
                _real(file, number, row, "time_ci_s"),
                _real(file, number, row, "energy_ci_j"),
            ),
        )


def _key(file: Path, number: int, row: dict[str, str]) -> CurveKey:
    allowed = {kind.value: kind for kind in Kind if kind.is_instruction}
    kind = allowed.get(row["instruction"].lower())
    if kind is None:
        raise _bad_cell(file, number, "instruction", row["instruction"], "one of " + ", ".join(allowed))
    stage, chunk = _whole(file, number, row, "stage", 0, 9999), _whole(file, number, row, "chunk", 0, 999)
    return CurveKey(stage, kind, chunk, _whole(file, number, row, _JOINT, 0, 999) if kind.is_joint else -1)


def _real(file: Path, number: int, row: dict[str, str], name: str, positive: bool = False) -> float:
    text = row.get(name) or ("" if name in _REQUIRED else "0")
    allowed = f"a finite number {'above 0' if positive else 'from 0'}, at most {MOST:g}"
    try:
        value = float(text)
    except ValueError:
        raise _bad_cell(file, number, name, text, allowed) from None
    if not 0 <= value <= MOST or (positive and value == 0):
        raise _bad_cell(file, number, name, text, allowed)
    return value


def _whole(file: Path, number: int, row: dict[str, str], name: str, least: int, most: int) -> int:
    text = row.get(name) or ("" if name in _REQUIRED else "0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value.is_integer() and least <= value <= most):
        raise _bad_cell(file, number, name, text, f"a whole number from {least} to {most}")
    return int(value)


def _bad_cell(file: Path, row: int, column: str, value: str, allowed: str) -> PerseusError:
    return PerseusError("profile-bad-cell", file=file, row=row, column=column, value=value, allowed=allowed)
