"""The state of one virtual GPU: a C structure in a shared file, one writer at a time.

``libnvidia_ml_stub.c`` mirrors the layout; ``LAYOUT_VERSION`` and the structure's size guard against drift.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import Structure, c_char, c_double, c_int32, c_uint32, c_uint64
from pathlib import Path

__all__ = [
    "MAX_CLOCKS",
    "MAX_CURVES",
    "MAX_PENDING",
    "GpuDynamic",
    "GpuState",
    "StateFile",
    "create_state",
    "state_path",
    "state_paths",
]

LAYOUT_MAGIC = 0x50455253
LAYOUT_VERSION = 2
MAX_CLOCKS = 256
MAX_CURVES = 512
MAX_PENDING = 16


class GpuConstants(Structure):
    """What a virtual GPU is: written at creation, read by everyone."""

    _fields_ = (
        ("magic", c_uint32),
        ("version", c_uint32),
        ("size", c_uint32),
        ("mig", c_int32),
        ("name", c_char * 64),
        ("uuid", c_char * 64),
        ("pci_bus_id", c_char * 32),
        ("driver_version", c_char * 32),
        ("blocking_power_w", c_double),
        ("power_limit_w", c_double),
        ("switch_latency_s", c_double),
        ("switch_latency_spread", c_double),  # latency x (1 +- spread), uniform
        ("counter_period_s", c_double),
        ("sampling_duty", c_double),
        ("noise", c_double),
        ("seed", c_uint64),
        ("clock_count", c_int32),
        ("reserved", c_int32),
        ("clocks_mhz", c_int32 * MAX_CLOCKS),  # descending
    )


class PendingSwitch(Structure):
    """A clock request that has not taken effect yet."""

    _fields_ = (("effective_s", c_double), ("clock", c_int32), ("reserved", c_int32))


class GpuDynamic(Structure):
    """What a virtual GPU does at ``time_s``, monotonic. Clocks are indices into ``clocks_mhz``."""

    _fields_ = (
        ("time_s", c_double),
        ("energy_j", c_double),  # exact
        ("clock", c_int32),
        ("pending_count", c_int32),
        ("pending", PendingSwitch * MAX_PENDING),
        ("curve", c_int32),  # of the instruction that runs; -1: none
        ("locked", c_int32),
        ("remaining", c_double),  # share of the instruction that is left, 1 ... 0
        ("slowdown", c_double),
        ("meter_s", c_double),  # next event of the energy counter
        ("meter_sampling", c_int32),  # 1: the event ends the sampling window; 0: it ends the period
        ("frozen", c_int32),
        ("meter_begin_s", c_double),
        ("meter_begin_j", c_double),
        ("meter_sample_j", c_double),
        ("meter_periods", c_uint64),
        ("counter_j", c_double),  # what the counter shows, before the offset
        ("counter_offset_j", c_double),
        ("frozen_j", c_double),
        ("requests", c_uint64),
        ("resets", c_uint64),
        ("fault_code", c_int32),  # NVML return code; 0: none
        ("fault_scope", c_int32),  # bit 0: setting clocks; bit 1: reading
        ("fault_calls", c_int32),  # calls that still fail; -1: all
        ("curve_count", c_int32),
        ("curves_generation", c_int32),
        ("reserved", c_int32),
    )


class CurveKeyState(Structure):
    """Whose curve a row of the table is. ``kind``: index into ``Kind``."""

    _fields_ = (("stage", c_int32), ("kind", c_int32), ("chunk", c_int32), ("backward_chunk", c_int32))


class GpuState(Structure):
    """The whole file."""

    _fields_ = (
        ("constants", GpuConstants),
        ("dynamic", GpuDynamic),
        ("keys", CurveKeyState * MAX_CURVES),
        ("table", ((c_double * 2) * MAX_CLOCKS) * MAX_CURVES),  # time_s, energy_j
    )


def state_path(state_dir: str | Path, index: int) -> Path:
    """Return the file of GPU ``index`` in a state directory."""
    return Path(state_dir) / f"gpu-{index:05d}.state"


def state_paths(state_dir: str | Path) -> list[Path]:
    """Return the files of all GPUs of a state directory, by index."""
    return sorted(Path(state_dir).glob("gpu-[0-9][0-9][0-9][0-9][0-9].state"))


def create_state(path: Path, state: GpuState) -> bool:
    """Write a new state file, whole or not at all.

    Args:
        path: File to create.
        state: Constants and dynamic state, without curves; the header is filled in here.

    Returns:
        Whether it was created: False when it was there already, which several ranks may rely on.
    """
    state.constants.magic = LAYOUT_MAGIC
    state.constants.version = LAYOUT_VERSION
    state.constants.size = ctypes.sizeof(GpuState)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(bytes(state)[: GpuState.keys.offset])  # no curves yet: the rest stays a hole
        file.truncate(ctypes.sizeof(GpuState))
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            draft.unlink()
    return True


class StateFile:
    """An open state file.

    Attributes:
        state: The shared structure. Read constants at will; touch the rest inside ``locked``.
    """

    def __init__(self, path: Path) -> None:
        """Open an existing state file.

        Raises:
            FileNotFoundError: There is none.
            ValueError: It is not a state file of this version.
        """
        with path.open("r+b") as file:
            self._fd = os.dup(file.fileno())
        try:
            if os.fstat(self._fd).st_size != ctypes.sizeof(GpuState):
                raise ValueError(f"{path}: not a virtual GPU's state file of layout {LAYOUT_VERSION}")
            self._map = mmap.mmap(self._fd, ctypes.sizeof(GpuState))
            self.state = GpuState.from_buffer(self._map)
            header = self.state.constants
            if (header.magic, header.version) != (LAYOUT_MAGIC, LAYOUT_VERSION):
                raise ValueError(f"{path}: not a virtual GPU's state file of layout {LAYOUT_VERSION}")
        except ValueError:
            os.close(self._fd)
            raise
        self._thread_lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[GpuDynamic]:
        """Hold the GPU and yield a private copy of its dynamic state, written back at the end in one piece.

        The lock dies with its holder, and a holder that is killed leaves the old state whole.
        """
        with self._thread_lock:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                shared = self.state.dynamic
                copy = GpuDynamic.from_buffer_copy(shared)
                yield copy
                ctypes.memmove(ctypes.addressof(shared), ctypes.addressof(copy), ctypes.sizeof(copy))
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; the map lives until the last reference to ``state`` is gone."""
        os.close(self._fd)
