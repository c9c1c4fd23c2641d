"""A virtual GPU, the same for every process that opens its state file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.nature import CONSTANTS, GpuSpec
from perseus_ds.simulator.physics import finish_time_s, request_clock, shown, start
from perseus_ds.simulator.state import MAX_CLOCKS, MAX_CURVES, GpuDynamic, GpuState, create_state
from perseus_ds.simulator.stream import Card, Moment, spec_of

__all__ = ["READING", "SETTING", "Fault", "GpuSpec", "VirtualGpu", "create_gpu"]

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


def create_gpu(path: Path, spec: GpuSpec, index: int = 0) -> bool:
    """Create a virtual GPU's state file, at its highest clock.

    Args:
        path: State file, from ``state_path``.
        spec: Description of the GPU.
        index: NVML index; UUID and PCI bus id follow from it.

    Returns:
        Whether it was created; False for an existing file, which stays unchanged.

    Raises:
        ValueError: No clocks or too many.
    """
    clocks = sorted(set(spec.clocks_mhz), reverse=True)
    if not 0 < len(clocks) <= MAX_CLOCKS:
        raise ValueError(f"{len(clocks)} clocks; 1 ... {MAX_CLOCKS} are allowed")
    state = GpuState()
    constants = state.constants
    constants.name = spec.name.encode()
    constants.uuid = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{spec.seed}:{index}')}".encode()
    constants.pci_bus_id = f"00000000:{index + 1:02X}:00.0".encode()
    constants.driver_version = (spec.driver_version or spec.behaviour).encode()
    constants.mig = int(spec.mig)
    constants.index = index
    constants.seed = spec.seed
    for field in CONSTANTS:
        setattr(constants.nature, field, getattr(spec, field))
    constants.clock_count = len(clocks)
    constants.clocks_mhz[: len(clocks)] = clocks
    start(state.dynamic, spec_of(state), time.monotonic())
    return create_state(path, state)


class VirtualGpu:
    """An open virtual GPU. Its methods are safe across threads and processes.

    Attributes:
        uuid: As NVML reports it.
        clocks_mhz: Supported SM clocks, descending.
        spec: Clocks, seed and physics.
        card: Its state file and curves.
    """

    def __init__(self, path: str | Path, now: Callable[[], float] = time.monotonic) -> None:
        """Open a GPU.

        Args:
            path: Its state file.
            now: Clock in s; tests may use one faster than the real one.

        Raises:
            FileNotFoundError: No such file.
            ValueError: Not a state file of this version.
        """
        self.card = Card(Path(path))
        self.now = now
        self.constants = self.card.file.state.constants
        self.spec = self.card.spec
        self.uuid: str = self.constants.uuid.decode()
        self.clocks_mhz: tuple[int, ...] = tuple(self.spec.clocks_mhz)

    def close(self) -> None:
        """Release the state file, which keeps the GPU."""
        self.card.file.close()

    @contextmanager
    def _current(self) -> Iterator[GpuDynamic]:
        """Lock the GPU and advance it to the present."""
        with self.moment() as (_, gpu):
            yield gpu

    @contextmanager
    def moment(self) -> Iterator[tuple[Moment, GpuDynamic]]:
        """Lock the GPU, advance it to the present, and yield that moment with the GPU's state."""
        with self.card.file.locked() as gpu:
            self.card.refresh(gpu)
            moment = Moment(self.card, gpu)
            moment.advance(self.now())
            yield moment, gpu
            moment.write_peers()

    # -- what instructions cost -------------------------------------------------------------------------

    def load_curves(self, curves: Mapping[CurveKey, Sequence[ProfilePoint]]) -> None:
        """Set the cost of instructions on this GPU, replacing earlier curves.

        Args:
            curves: Points of each curve. Time and energy are interpolated over the frequency between points, and
                constant beyond the end points.

        Raises:
            ValueError: Too many curves.
        """
        if len(curves) > MAX_CURVES:
            raise ValueError(f"{len(curves)} curves; at most {MAX_CURVES} are allowed")
        with self._current() as gpu:
            state = self.card.file.state
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
        """Start an instruction: the GPU draws its curve's power until its end, and blocking power after that.

        Raises:
            KeyError: No such curve.
        """
        with self._current() as gpu:
            gpu.curve = self.card.rows[key]
            gpu.remaining = gpu.factor = 1.0

    def finish_time_s(self) -> float:
        """Return the monotonic end time of the instruction under the clock requests so far."""
        with self._current() as gpu:
            return finish_time_s(gpu, self.spec, self.card.curves)

    # -- what NVML sees -----------------------------------------------------------------------------------

    def lock_clock(self, mhz: int) -> None:
        """Request the highest supported clock up to ``mhz``; it outlives this process."""
        with self._current() as gpu:
            gpu.locked = 1
            request_clock(gpu, self.spec, self._index(mhz))

    def reset_clocks(self) -> None:
        """Request the default: the highest clock."""
        with self._current() as gpu:
            gpu.locked = 0
            gpu.resets += 1
            request_clock(gpu, self.spec, 0)

    def counter_mj(self) -> int:
        """Return the energy counter in mJ, as published at the end of its last period."""
        with self._current() as gpu:
            if gpu.frozen:
                return int(gpu.frozen_j * 1000.0)
            return int((gpu.counter_j - gpu.counter_offset_j) * 1000.0)

    def power_w(self) -> float:
        """Return the power that NVML shows, in W."""
        return self._shown()[0]

    def sm_clock_mhz(self) -> int:
        """Return the SM clock that NVML shows, lower than the requested one when throttled."""
        return self._shown()[1]

    def throttle_reasons(self) -> int:
        """Return NVML's clock event reasons: the causes of a clock below the requested one."""
        return self._shown()[2]

    def _shown(self) -> tuple[float, int, int]:
        with self._current() as gpu:
            return shown(gpu, self.spec, self.card.curves)

    def is_locked(self) -> bool:
        """Return whether any process has locked the clocks."""
        with self._current() as gpu:
            return bool(gpu.locked)

    def requests(self) -> tuple[int, int]:
        """Return the number of clock requests, and of resets among them."""
        with self._current() as gpu:
            return gpu.requests, gpu.resets

    def fault_code(self, scope: int) -> int:
        """Return the NVML return code for a call of this scope; each failing call counts."""
        if not self.card.file.state.dynamic.fault_code:  # no need to wait for the lock in every call
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

    def throttle_to(self, ceiling_mhz: int | None) -> None:
        """Limit the clock to ``ceiling_mhz``, as on a hot GPU; None: no limit."""
        with self._current() as gpu:
            gpu.thermal_ceiling = 0 if ceiling_mhz is None else self._index(ceiling_mhz)

    def set_fault(self, fault: Fault | None, calls: int = -1) -> None:
        """Inject an error, replacing the previous one.

        Args:
            fault: The error; None: no error.
            calls: Number of failing calls; -1: all. Ignored for the counter's faults.

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

    def _index(self, mhz: float) -> int:
        """Return the index of the highest supported clock up to ``mhz``, or of the lowest clock."""
        return next((i for i, value in enumerate(self.clocks_mhz) if value <= mhz), len(self.clocks_mhz) - 1)


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
