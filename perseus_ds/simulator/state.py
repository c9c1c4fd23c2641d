"""The state of one virtual GPU: a C structure in a shared file, one writer at a time."""

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

from perseus_ds.simulator.nature import CONSTANTS

__all__ = [
    "MAX_CHANNELS",
    "MAX_CLOCKS",
    "MAX_CURVES",
    "MAX_EARLY",
    "MAX_ITEMS",
    "MAX_ITERATIONS",
    "MAX_PENDING",
    "RECENT",
    "ChannelState",
    "CurveKeyState",
    "GpuConstants",
    "GpuDynamic",
    "GpuState",
    "ItemState",
    "NatureState",
    "PendingSwitch",
    "StateFile",
    "TruthState",
    "create_state",
    "state_path",
    "state_paths",
]

LAYOUT_MAGIC = 0x50455253
LAYOUT_VERSION = 11
MAX_CLOCKS = 256
MAX_CURVES = 512
MAX_EARLY = 512
MAX_PENDING = 16
MAX_ITEMS = 4096
MAX_CHANNELS = 24
MAX_ITERATIONS = 4096
RECENT = 64


class NatureState(Structure):
    """The constants of the physics."""

    _fields_ = tuple((name, c_double) for name in CONSTANTS)


class GpuConstants(Structure):
    """Constant description of a virtual GPU: written at creation, read by everyone."""

    _fields_ = (
        ("magic", c_uint32),
        ("version", c_uint32),
        ("size", c_uint32),
        ("mig", c_int32),
        ("name", c_char * 64),
        ("uuid", c_char * 64),
        ("pci_bus_id", c_char * 32),
        ("driver_version", c_char * 32),
        ("nature", NatureState),
        ("seed", c_uint64),
        ("clock_count", c_int32),
        ("index", c_int32),
        ("clocks_mhz", c_int32 * MAX_CLOCKS),  # descending
    )


class PendingSwitch(Structure):
    """A clock request that has not taken effect yet."""

    _fields_ = (("effective_s", c_double), ("clock", c_int32), ("reserved", c_int32))


class ChannelState(Structure):
    """The transfers with one other GPU under one label, up to the stream's position."""

    _fields_ = (
        ("peer", c_int32),  # index of the other GPU
        ("label", c_int32),  # the other side's is this one with its last bit flipped
        ("posted", c_uint64),  # number of the latest
        ("numbers", c_uint64 * RECENT),
        ("times_s", c_double * RECENT),
    )


class ItemState(Structure):
    """One item of a stream. ``kind``: see ``stream.py``."""

    _fields_ = (
        ("stamp_s", c_double),  # when the host has enqueued it
        ("factor", c_double),  # of an instruction's time
        ("size", c_double),  # of its work, as a multiple of its curve's
        ("number", c_uint64),  # of a transfer or an iteration
        ("kind", c_int32),
        ("curve", c_int32),
        ("channel", c_int32),
        ("reserved", c_int32),
    )


class TruthState(Structure):
    """True cost of one curve's instructions that ran at one clock; for fields, see ``truth.Cost``."""

    _fields_ = (("count", c_double), ("time_s", c_double), ("energy_j", c_double))

    def add(self, time_s: float, energy_j: float) -> None:
        """Count one instruction more."""
        self.count += 1.0
        self.time_s += time_s
        self.energy_j += energy_j


class GpuDynamic(Structure):
    """State of a virtual GPU at ``time_s``, monotonic. Clocks are indices into ``clocks_mhz``, from the top."""

    _fields_ = (
        ("time_s", c_double),
        ("energy_j", c_double),  # exact
        ("clock", c_int32),  # that was asked for and has come
        ("ceiling", c_int32),  # of the governor
        ("thermal_ceiling", c_int32),
        ("pending_count", c_int32),
        ("pending", PendingSwitch * MAX_PENDING),
        ("curve", c_int32),  # of the instruction that runs; -1: none
        ("locked", c_int32),
        ("remaining", c_double),  # share of the instruction that is left, 1 ... 0
        ("slowdown", c_double),
        ("factor", c_double),  # of the running instruction's time
        ("head", c_uint64),  # of the stream: everything before it is over
        ("working", c_int32),  # the stream's head is the instruction that runs
        ("gone", c_int32),  # nothing will be enqueued any more
        ("owner", c_int32),  # process that enqueues
        ("channel_count", c_int32),
        ("host_s", c_double),  # from when on the host could enqueue the next item
        ("begin_s", c_double),  # of the running instruction
        ("begin_j", c_double),
        ("begin_clock", c_int32),  # but for the power limit; -1: the instruction had another one, too, or was slowed
        ("limited", c_int32),  # 1: the power limit has held the running instruction
        ("unchanged", c_int32),  # iterations that have begun since the clock asked for has changed
        ("channels", ChannelState * MAX_CHANNELS),
        ("stalled_until_s", c_double),
        ("tick_s", c_double),  # next look of the governor
        ("tick_j", c_double),  # energy at its last look
        ("average_w", c_double),  # that the governor sees
        ("ceiling_mhz", c_double),
        ("warming_k", c_double),
        ("counter_average_w", c_double),  # that the energy counter integrates
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
        ("renewed_s", c_double),  # next renewal of what NVML shows, besides the counter
        ("renewals", c_uint64),
        ("power_from_s", c_double),  # next begin of the window of the power that it shows
        ("power_from_j", c_double),  # energy at the latest one
        ("shown_w", c_double),
        ("shown_mhz", c_int32),
        ("shown_reasons", c_int32),
        ("requests", c_uint64),
        ("resets", c_uint64),
        ("fault_code", c_int32),  # NVML return code; 0: none
        ("fault_scope", c_int32),  # bit 0: setting clocks; bit 1: reading
        ("fault_calls", c_int32),  # calls that still fail; -1: all
        ("curve_count", c_int32),
        ("curves_generation", c_int32),
        ("iteration", c_int32),  # that has begun latest
    )


class CurveKeyState(Structure):
    """Key of a row of the table. ``kind``: index into ``Kind``."""

    _fields_ = (("stage", c_int32), ("kind", c_int32), ("chunk", c_int32), ("backward_chunk", c_int32))


class GpuState(Structure):
    """The whole file."""

    _fields_ = (
        ("constants", GpuConstants),
        ("dynamic", GpuDynamic),
        ("tail", c_uint64),  # of the stream; the owner alone writes it and the items
        ("items", ItemState * MAX_ITEMS),
        ("ended_s", c_double * MAX_ITEMS),
        ("iterations", (c_double * 3) * MAX_ITERATIONS),  # the truth at their begins: time_s, energy_j, warmth
        ("truth", (TruthState * MAX_CLOCKS) * MAX_CURVES),
        ("highest_truth", (TruthState * MAX_CURVES) * MAX_EARLY),  # of the first iterations, at the highest clock
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
    """Write a new state file, atomically.

    Args:
        path: File to create.
        state: Constants and dynamic state, without curves; the header is filled in here.

    Returns:
        Whether it was created: False if it existed, which several ranks may rely on.
    """
    state.constants.magic = LAYOUT_MAGIC
    state.constants.version = LAYOUT_VERSION
    state.constants.size = ctypes.sizeof(GpuState)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        # Nothing has run yet: the rest stays a hole.
        file.write(ctypes.string_at(ctypes.addressof(state), GpuState.tail.offset))
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
        state: The shared structure. Read constants at will; access the rest only inside ``locked``.
    """

    def __init__(self, path: Path) -> None:
        """Open an existing state file.

        Raises:
            FileNotFoundError: There is none.
            ValueError: It is not a state file of this version.
        """
        with path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size != ctypes.sizeof(GpuState):
                raise ValueError(f"{path}: not a virtual GPU's state file of layout {LAYOUT_VERSION}")
            self.state = GpuState.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(GpuState)))
        header = self.state.constants
        if (header.magic, header.version) != (LAYOUT_MAGIC, LAYOUT_VERSION):
            raise ValueError(f"{path}: not a virtual GPU's state file of layout {LAYOUT_VERSION}")
        # One lock for all of a directory: a GPU that waits for another one brings it forward, too.
        self._lock = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        self._thread_lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[GpuDynamic]:
        """Lock the directory's GPUs and yield a copy of this one's dynamic state, written back at the end as a whole.

        The lock ends with its holder. If the holder is killed, the old state remains intact.
        """
        with self._thread_lock:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                copy = GpuDynamic.from_buffer_copy(self.state.dynamic)
                yield copy
                self.write(copy)
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def write(self, dynamic: GpuDynamic) -> None:
        """Replace the dynamic state; call it inside ``locked`` of any GPU of the directory."""
        shared = self.state.dynamic
        ctypes.memmove(ctypes.addressof(shared), ctypes.addressof(dynamic), ctypes.sizeof(dynamic))

    def close(self) -> None:
        """Close the file; the map lives until the last reference to ``state`` is gone."""
        os.close(self._lock)
