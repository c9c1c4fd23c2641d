"""Constants of a GPU model and its driver: time of a clock switch, period of the energy counter, age of readings.

Current drivers renew the clock that NVML shows every 100 ms: an H200's 580.159.04, RUSD in the open kernel modules.
A reading tells when a clock came no better than that.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from perseus_ds.device.driver import DriverError, Gpu, is_reached
from perseus_ds.files import read_json
from perseus_ds.messages import user_message

__all__ = ["Calibration", "calibrate", "calibrated"]

_SWITCHES = 10
_PATIENCE_S = 0.5  # for one switch; GH200 has been seen to take several hundred ms
_PERIODS = 12
_COUNTER_LIMIT_S = 2.0
_READ_INTERVAL_S = 0.0005
_LONGEST_S = 60.0
_RENEWED_S, _NEAR = 0.05, 0.08  # shortest period of readings that matters; switches seen take multiples of it
_BEFORE_RENEWAL = (0.04, 0.08, 0.12, 0.16, 0.22, 0.3, 0.4, 0.5, 0.7, 0.9)


class Calibration(NamedTuple):
    """Measured constants of a GPU model and driver.

    Attributes:
        switch_latencies_s: From a request to the new SM clock read back, ascending; empty: not measured.
        counter_period_s: Median time between two changes of the energy counter; 0: not measured.
        readings_period_s: How often the clock that the driver shows is renewed; 0: it is of now.
    """

    switch_latencies_s: tuple[float, ...] = ()
    counter_period_s: float = 0.0
    readings_period_s: float = 0.0

    @property
    def switch_latency_s(self) -> float:
        """Median switch latency in s; 0 when not measured."""
        return statistics.median(self.switch_latencies_s) if self.switch_latencies_s else 0.0

    @property
    def longest_switch_s(self) -> float:
        """Switch latency in s that one clock in ten exceeds, as far longer ones happen; 0 when not measured."""
        latencies_s = self.switch_latencies_s
        return latencies_s[-1 - len(latencies_s) // 10] if latencies_s else 0.0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Calibration:
        """Rebuild a calibration from ``_asdict``.

        Raises:
            KeyError, TypeError, ValueError: It is no calibration.
        """
        latencies_s = tuple(float(value) for value in data["switch_latencies_s"])
        found = cls(latencies_s, float(data["counter_period_s"]), float(data["readings_period_s"]))
        if not all(0.0 <= seconds <= _LONGEST_S for seconds in (*latencies_s, *found[1:])):
            raise ValueError("a time that cannot be")
        return found


def calibrate(gpu: Gpu) -> Calibration:
    """Measure the constants in one to four seconds. Clocks change only if the backend sets any, and are then reset.

    Args:
        gpu: The GPU; it need not be busy.

    Returns:
        The calibration, without switches that never arrived.

    Raises:
        DriverError: The driver refuses.
    """
    latencies_s, period_s = _switches(gpu) if gpu.sets_clocks else ([], 0.0)
    return Calibration(tuple(sorted(latencies_s)), _counter_period_s(gpu), period_s)


def _switches(gpu: Gpu) -> tuple[list[float], float]:
    """Switch between clocks over the whole range; return the latencies, and the period of readings if it matters."""
    clocks = gpu.supported_clocks_mhz
    spread = [clocks[trial * (len(clocks) - 1) // (_SWITCHES - 1)] for trial in range(_SWITCHES)]
    steps = [mhz for pair in zip(reversed(spread), spread, strict=True) for mhz in pair][:_SWITCHES]
    try:
        seen_s = _seen_after_s(gpu, steps, [0.0] * len(steps))
        if period_s := _common_period_s(seen_s[1:]):
            later_s = _seen_after_s(gpu, steps, [period_s * (1.0 - share) for share in _BEFORE_RENEWAL])
            if not _common_period_s(later_s):  # else all clocks take equally long
                return _within(later_s, period_s), period_s
        return seen_s, 0.0
    finally:
        gpu.reset_clocks()


def _seen_after_s(gpu: Gpu, steps: Sequence[int], waits_s: Sequence[float]) -> list[float]:
    """Ask for one clock after the other, each so long after the one before was seen, and return when it was seen."""
    found: list[float] = []
    for mhz, wait_s in zip(steps, waits_s, strict=True):
        if is_reached(gpu, gpu.sm_clock_mhz(), mhz):
            continue
        time.sleep(wait_s)
        begin_s = time.monotonic()
        gpu.lock_clock(mhz)
        while (waited_s := time.monotonic() - begin_s) < _PATIENCE_S:
            if is_reached(gpu, gpu.sm_clock_mhz(), mhz):
                found.append(waited_s)
                break
            time.sleep(_READ_INTERVAL_S)
        else:  # a throttled GPU will not reach the others either
            break
    return found


def _common_period_s(seen_s: Sequence[float]) -> float:
    """Return the time that all are multiples of, as each request came just after a reading was renewed; 0: none."""
    period_s = min(seen_s, default=0.0)
    if period_s < _RENEWED_S or len(seen_s) < _SWITCHES // 2:
        return 0.0
    return 0.0 if any(abs(one_s / period_s - round(one_s / period_s)) > _NEAR for one_s in seen_s) else period_s


def _within(seen_s: Sequence[float], period_s: float) -> list[float]:
    """Return latencies: each clock came within a period before it was seen, and most came about equally fast.

    Of one that did not, the middle of that period counts.
    """
    ranges_s = [(max(0.0, one_s - period_s), one_s) for one_s in seen_s]
    bounds_s = sorted(bound_s for one in ranges_s for bound_s in one)
    middles_s = [(low_s + high_s) / 2.0 for low_s, high_s in itertools.pairwise(bounds_s)]
    usual_s = max(middles_s, key=lambda at_s: sum(low_s < at_s <= high_s for low_s, high_s in ranges_s), default=0.0)
    return [usual_s if low_s < usual_s <= high_s else (low_s + high_s) / 2.0 for low_s, high_s in ranges_s]


def _counter_period_s(gpu: Gpu) -> float:
    """Watch the counter move."""
    begin_s = time.monotonic()
    changes_s: list[float] = []
    last_j = gpu.energy_j()
    while len(changes_s) <= _PERIODS and time.monotonic() - begin_s < _COUNTER_LIMIT_S:
        time.sleep(_READ_INTERVAL_S)
        energy_j = gpu.energy_j()
        if energy_j != last_j:
            changes_s.append(time.monotonic())
            last_j = energy_j
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(changes_s)]
    return statistics.median(gaps_s) if gaps_s else 0.0


def calibrated(gpu: Gpu, measure: bool, cache_dir: Path | None, tell: Callable[[str, str], None]) -> Calibration:
    """Return the calibration from the cache, or measure and store it.

    Args:
        gpu: The GPU.
        measure: Whether to measure at all.
        cache_dir: Directory of the calibrations, one file per GPU model and driver; None: no cache.
        tell: Called with code and text of messages; a full disk or a refusing driver raises nothing.

    Returns:
        The calibration, empty if it could not be measured.
    """
    if not measure:
        return Calibration()
    file = cache_dir / f"calibration-{_slug(gpu.name)}-{_slug(gpu.driver_version)}.json" if cache_dir else None
    kept = _read(file, tell) if file else None
    if kept and (kept.switch_latencies_s or not gpu.sets_clocks):
        return kept
    try:
        measured = calibrate(gpu)
    except DriverError as error:
        tell(error.code, str(error))
        return Calibration()
    if file and measured.counter_period_s and (measured.switch_latencies_s or not gpu.sets_clocks):
        try:
            _write(file, measured)
        except OSError as error:
            tell("calibration-cache", user_message("calibration-cache", path=file, detail=error))
    return measured


def _slug(text: str) -> str:
    """Return a text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-").lower()


def _read(file: Path, tell: Callable[[str, str], None]) -> Calibration | None:
    """Read a stored calibration; None if missing or damaged. A damaged one is renamed."""
    try:
        return Calibration.from_json(read_json(file, guarded=True))
    except OSError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        aside = file.with_suffix(".damaged")
        with suppress(OSError):
            file.replace(aside)
        detail = f"{type(error).__name__}: {error}"
        tell("calibration-damaged", user_message("calibration-damaged", path=file, detail=detail, aside=aside))
        return None


def _write(file: Path, calibration: Calibration) -> None:
    """Store a calibration atomically: several keepers may do so at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(calibration._asdict()), encoding="utf-8")
        draft.chmod(0o644)  # what anybody may write is not read again
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
