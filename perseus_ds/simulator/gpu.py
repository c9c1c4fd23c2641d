"""A virtual GPU, seen alike by every process that opens its state file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.physics import Nature, advance, finish_time_s, request_clock, start_meter
from perseus_ds.simulator.state import MAX_CLOCKS, MAX_CURVES, GpuDynamic, GpuState, StateFile, create_state

__all__ = ["Fault", "GpuSpec", "VirtualGpu", "create_gpu"]

Fault = Literal["no_permission", "not_supported", "gpu_is_lost", "timeout", "unknown", "frozen_counter", "counter_wrap"]
SETTING, READING = 1, 2
_FAULT_CODES: dict[str, tuple[int, int]] = {  # NVML return code (nvml.h), what fails
    "no_permission": (4, SETTING),
    "not_supported": (3, SETTING),
    "gpu_is_lost": (15, SETTING | READING),
    "timeout": (10, SETTING),
    "unknown": (999, SETTING),
}
_KINDS = tuple(Kind)
THERMAL_SLOWDOWN = 0x40


@dataclass(frozen=True)
class GpuSpec:
    """What a virtual GPU is.

    Attributes:
        clocks_mhz: Supported SM clocks.
        name: As NVML reports it.
        driver_version: As NVML reports it; default: names latency and period, which calibrations depend on.
        blocking_power_w: Power while no instruction runs.
        power_limit_w: As NVML reports it; not enforced.
        switch_latency_s: From a clock request to the new clock.
        switch_latency_spread: The latency is uniform within ± this share.
        counter_period_s: Update period of the energy counter.
        sampling_duty: Share of the period in which power is sampled.
        noise: Relative standard deviation of each counter increment.
        seed: Of noise, latencies and the counter's phase.
        mig: Whether MIG mode is on.
    """

    clocks_mhz: Sequence[int]
    name: str = "Simulated GPU"
    driver_version: str = ""
    blocking_power_w: float = 83.64
    power_limit_w: float = 400.0
    switch_latency_s: float = 0.010
    switch_latency_spread: float = 0.0
    counter_period_s: float = 0.050
    sampling_duty: float = 1.0
    noise: float = 0.0
    seed: int = 0
    mig: bool = False


def create_gpu(path: Path, spec: GpuSpec, index: int = 0) -> bool:
    """Create a virtual GPU's state file, at its highest clock.

    Args:
        path: State file, from ``state_path``.
        spec: What the GPU is.
        index: NVML index, from which UUID and PCI bus id follow.

    Returns:
        Whether it was created; False when it exists, which is then left as it is.

    Raises:
        ValueError: No clocks or too many.
    """
    clocks = sorted(set(spec.clocks_mhz), reverse=True)
    if not 0 < len(clocks) <= MAX_CLOCKS:
        raise ValueError(f"{len(clocks)} clocks; 1 ... {MAX_CLOCKS} are allowed")
    state = GpuState()
    constants, dynamic = state.constants, state.dynamic
    constants.name = spec.name.encode()
    constants.uuid = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{spec.seed}:{index}')}".encode()
    constants.pci_bus_id = f"00000000:{index + 1:02X}:00.0".encode()
    behaviour = f"simulated-{spec.switch_latency_s * 1e3:g}ms-{spec.counter_period_s * 1e3:g}ms"
    constants.driver_version = (spec.driver_version or behaviour).encode()
    constants.mig = int(spec.mig)
    for field in ("blocking_power_w", "power_limit_w", "switch_latency_s", "switch_latency_spread"):
        setattr(constants, field, getattr(spec, field))
    for field in ("counter_period_s", "sampling_duty", "noise", "seed"):
        setattr(constants, field, getattr(spec, field))
    constants.clock_count = len(clocks)
    constants.clocks_mhz[: len(clocks)] = clocks
    dynamic.curve = -1
    dynamic.slowdown = 1.0
    start_meter(dynamic, _nature(state), time.monotonic())
    return create_state(path, state)


def _nature(state: GpuState) -> Nature:
    """Read the physics' constants out of a state."""
    return Nature(**{name: getattr(state.constants, name) for name in Nature.__dataclass_fields__})


class VirtualGpu:
    """An open virtual GPU. Every method is safe against other threads and processes that use the same GPU.

    Attributes:
        uuid: As NVML reports it.
        clocks_mhz: Supported SM clocks, descending.
        nature: Constants of its evolution.
    """

    def __init__(self, path: str | Path, now: Callable[[], float] = time.monotonic) -> None:
        """Open a GPU.

        Args:
            path: Its state file.
            now: Clock in s; tests may let it run faster than the real one.

        Raises:
            FileNotFoundError: No such file.
            ValueError: Not a state file of this version.
        """
        self._file = StateFile(Path(path))
        self._now = now
        self._curves: list[list[tuple[float, float]]] = []
        self._rows: dict[CurveKey, int] = {}
        self._generation = -1
        self.constants = self._file.state.constants
        self.nature = _nature(self._file.state)
        self.uuid: str = self.constants.uuid.decode()
        self.clocks_mhz: tuple[int, ...] = tuple(self.constants.clocks_mhz[: self.constants.clock_count])

    def close(self) -> None:
        """Let go of the state file; the GPU lives on in it."""
        self._file.close()

    @contextmanager
    def _current(self) -> Iterator[GpuDynamic]:
        """Lock the GPU and bring it to the present."""
        with self._file.locked() as gpu:
            if gpu.curves_generation != self._generation:
                self._read_curves(gpu)
            advance(gpu, self.nature, self._curves, self._now())
            yield gpu

    def _read_curves(self, gpu: GpuDynamic) -> None:
        state, clocks = self._file.state, len(self.clocks_mhz)
        self._curves = [[tuple(point) for point in state.table[row][:clocks]] for row in range(gpu.curve_count)]
        keys = (state.keys[row] for row in range(gpu.curve_count))
        self._rows = {
            CurveKey(key.stage, _KINDS[key.kind], key.chunk, key.backward_chunk): row for row, key in enumerate(keys)
        }
        self._generation = gpu.curves_generation

    # -- what instructions cost -------------------------------------------------------------------------

    def load_curves(self, curves: Mapping[CurveKey, Sequence[ProfilePoint]]) -> None:
        """Set what instructions cost on this GPU, in place of what was set before.

        Args:
            curves: Points of each curve; between them time and energy are interpolated over
                the frequency, beyond them the end point's are used.

        Raises:
            ValueError: Too many curves.
        """
        if len(curves) > MAX_CURVES:
            raise ValueError(f"{len(curves)} curves; at most {MAX_CURVES} are allowed")
        with self._current() as gpu:
            state = self._file.state
            for row, (curve, points) in enumerate(curves.items()):
                key = state.keys[row]
                key.stage, key.kind = curve.stage, _KINDS.index(curve.kind)
                key.chunk, key.backward_chunk = curve.chunk, curve.backward_chunk
                for clock, mhz in enumerate(self.clocks_mhz):
                    state.table[row][clock][:] = _interpolate(points, mhz)
            gpu.curve, gpu.curve_count = -1, len(curves)
            gpu.curves_generation += 1

    # -- work ---------------------------------------------------------------------------------------------

    def begin_work(self, key: CurveKey) -> None:
        """Start an instruction: from now on it draws its curve's power until it is done, blocking power then.

        Raises:
            KeyError: No such curve.
        """
        with self._current() as gpu:
            gpu.curve = self._rows[key]
            gpu.remaining = 1.0

    def finish_time_s(self) -> float:
        """Return the monotonic time at which the instruction will be done at the clocks asked for so far."""
        with self._current() as gpu:
            return finish_time_s(gpu, self._curves)

    # -- what NVML sees -----------------------------------------------------------------------------------

    def lock_clock(self, mhz: int) -> None:
        """Ask for the highest supported clock that is not above ``mhz``; it stays after this process."""
        clock = next((i for i, value in enumerate(self.clocks_mhz) if value <= mhz), len(self.clocks_mhz) - 1)
        with self._current() as gpu:
            gpu.locked = 1
            request_clock(gpu, self.nature, clock)

    def reset_clocks(self) -> None:
        """Ask for the default: the highest clock."""
        with self._current() as gpu:
            gpu.locked = 0
            gpu.resets += 1
            request_clock(gpu, self.nature, 0)

    def counter_mj(self) -> int:
        """Return the energy counter in mJ, as published at the end of its last period."""
        with self._current() as gpu:
            if gpu.frozen:
                return int(gpu.frozen_j * 1000.0)
            return int((gpu.counter_j - gpu.counter_offset_j) * 1000.0)

    def power_w(self) -> float:
        """Return the power drawn at this moment, in W."""
        with self._current() as gpu:
            if gpu.curve < 0 or gpu.remaining <= 0.0:
                return self.nature.blocking_power_w
            time_s, energy_j = self._curves[gpu.curve][gpu.clock]
            return (energy_j / time_s + self.nature.blocking_power_w * (gpu.slowdown - 1.0)) / gpu.slowdown

    def sm_clock_mhz(self) -> int:
        """Return the SM clock in effect, lower than the one asked for when throttled."""
        with self._current() as gpu:
            allowed_mhz = self.clocks_mhz[gpu.clock] / gpu.slowdown
        return next((mhz for mhz in self.clocks_mhz if mhz <= allowed_mhz), self.clocks_mhz[-1])

    def throttle_reasons(self) -> int:
        """Return NVML's clock event reasons: hardware thermal slowdown when throttled."""
        with self._current() as gpu:
            return THERMAL_SLOWDOWN if gpu.slowdown > 1.0 else 0

    def is_locked(self) -> bool:
        """Return whether clocks are locked, by whomever."""
        with self._current() as gpu:
            return bool(gpu.locked)

    def requests(self) -> tuple[int, int]:
        """Return how often clocks were asked for in all, and how many of these were resets."""
        with self._current() as gpu:
            return gpu.requests, gpu.resets

    def fault_code(self, scope: int) -> int:
        """Return the NVML return code that a call of this scope must give now; each failing call counts."""
        if not self._file.state.dynamic.fault_code:  # no need to wait for the lock in every call
            return 0
        with self._current() as gpu:
            if not gpu.fault_code or not gpu.fault_scope & scope or gpu.fault_calls == 0:
                return 0
            if gpu.fault_calls > 0:
                gpu.fault_calls -= 1
            return gpu.fault_code

    # -- what only a simulator can tell and do --------------------------------------------------------------

    def true_energy_j(self) -> float:
        """Return the exact energy since creation, in J."""
        with self._current() as gpu:
            return gpu.energy_j

    def throttle(self, slowdown: float) -> None:
        """Make instructions take ``slowdown`` times as long, with blocking power in the extra time."""
        with self._current() as gpu:
            gpu.slowdown = slowdown

    def set_fault(self, fault: Fault | None, calls: int = -1) -> None:
        """Inject an error, in place of the one before.

        Args:
            fault: What goes wrong; None: nothing any more.
            calls: How many calls fail; -1: all. Of no meaning for the counter's faults.

        Raises:
            ValueError: Unknown fault.
        """
        if fault is not None and fault not in get_args(Fault):
            raise ValueError(f"{fault!r}: no such fault; allowed: {', '.join(get_args(Fault))}")
        with self._current() as gpu:
            gpu.fault_code, gpu.fault_scope = _FAULT_CODES.get(fault or "", (0, 0))
            gpu.fault_calls = calls
            gpu.frozen = int(fault == "frozen_counter")
            gpu.frozen_j = gpu.counter_j - gpu.counter_offset_j
            if fault == "counter_wrap":
                gpu.counter_offset_j = gpu.counter_j


def _interpolate(points: Sequence[ProfilePoint], mhz: int) -> tuple[float, float]:
    """Return time and energy at a clock, linear between the points and constant beyond them."""
    ordered = sorted(points, key=lambda point: point.frequency_mhz)
    above = next((i for i, point in enumerate(ordered) if point.frequency_mhz >= mhz), len(ordered) - 1)
    high, low = ordered[above], ordered[max(0, above - 1)]
    if high.frequency_mhz == low.frequency_mhz:
        return high.time_s, high.energy_j
    share = min(1.0, max(0.0, (mhz - low.frequency_mhz) / (high.frequency_mhz - low.frequency_mhz)))
    return (
        low.time_s + share * (high.time_s - low.time_s),
        low.energy_j + share * (high.energy_j - low.energy_j),
    )
