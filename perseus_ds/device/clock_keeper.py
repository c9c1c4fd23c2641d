"""The trainer's side of the clock keeper. No call but ``start`` and ``close`` ever waits."""

from __future__ import annotations

import atexit
import os
import select
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseus_ds import isolated
from perseus_ds.device.calibration import Calibration
from perseus_ds.device.gpu import DEFAULT_ZEUSD_ADDRESS, Backend
from perseus_ds.device.protocol import MESSAGE_BYTES, RESET, Request, Sample, Switch, decode
from perseus_ds.messages import PerseusError, user_message

__all__ = ["ClockKeeper", "GpuInfo", "KeeperUpdate"]

_START_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class GpuInfo:
    """What the keeper found out about its GPU.

    Attributes:
        pid: The keeper's process.
        backend: What sets the clocks: ``nvml``, ``zeusd`` or ``observe``.
        reason: Why this backend.
        uuid: NVML's UUID.
        name: Model.
        driver_version: NVIDIA driver.
        supported_clocks_mhz: SM clocks that can be asked for, descending.
        power_limit_w: Enforced power limit.
        sets_clocks: Whether clocks are set at all.
        calibration: Switch latency and counter period.
    """

    pid: int
    backend: Backend
    reason: str
    uuid: str
    name: str
    driver_version: str
    supported_clocks_mhz: tuple[int, ...]
    power_limit_w: float
    sets_clocks: bool
    calibration: Calibration


@dataclass(frozen=True)
class KeeperUpdate:
    """What the keeper has sent since the last time.

    Attributes:
        samples: Points at which the energy counter changed, in order.
        switches: What became of the clock requests that reached the driver, in order.
        notices: Messages for people, each once per cause.
    """

    samples: tuple[Sample, ...]
    switches: tuple[Switch, ...]
    notices: tuple[str, ...]


class ClockKeeper:
    """A running keeper process; start one with ``ClockKeeper.start``.

    Attributes:
        info: What the keeper found out about its GPU.
        alive: False once the keeper is gone; clocks stay at their defaults then.
    """

    info: GpuInfo

    def __init__(self, process: subprocess.Popen[bytes], pipe: socket.socket, command: list[str]) -> None:
        """Use ``start`` instead."""
        self._process = process
        self._pipe = pipe
        self._command = command
        self._target = RESET
        self._owner = os.getpid()
        self._notices: list[str] = []
        self._told: set[str] = set()
        self.alive = True

    @classmethod
    def start(
        cls,
        cuda_index: int = 0,
        *,
        uuid: str | None = None,
        pci_bus_id: str | None = None,
        backend: Backend = "auto",
        zeusd_address: str = DEFAULT_ZEUSD_ADDRESS,
        counter_poll_s: float = 0.005,
        min_switch_interval_s: float = 0.0,
        calibrate: bool = False,
        cache_dir: Path | None = None,
    ) -> ClockKeeper:
        """Start a keeper, clear locks that a crash has left, and wait until it is ready.

        Args:
            cuda_index: CUDA's index of the rank's device.
            uuid: The device's UUID where CUDA could be asked.
            pci_bus_id: The device's PCI bus id, likewise.
            backend: Who sets the clocks.
            zeusd_address: UNIX socket or ``host:port`` of zeusd.
            counter_poll_s: How often the energy counter is read.
            min_switch_interval_s: Least time between two requests to the driver.
            calibrate: Whether to measure switch latency and counter period, for one to three seconds.
            cache_dir: Where calibrations are kept; None: nowhere.

        Returns:
            The keeper.

        Raises:
            PerseusError: It did not start, or the GPU or the backend cannot be used.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = {
            "--cuda-index": cuda_index,
            "--uuid": uuid,
            "--pci-bus-id": pci_bus_id,
            "--backend": backend,
            "--zeusd-address": zeusd_address,
            "--poll-s": counter_poll_s,
            "--min-switch-interval-s": min_switch_interval_s,
            "--cache-dir": cache_dir.absolute() if cache_dir else None,
        }
        command = [*isolated.command("perseus_ds.device.keeper"), *(["--calibrate"] if calibrate else [])]
        command += [str(text) for option in options.items() if option[1] is not None for text in option]
        try:
            with theirs:
                process = _spawn(command, theirs.fileno())
        except OSError as error:
            ours.close()
            raise PerseusError("keeper-start", detail=error) from error
        keeper = cls(process, ours, command)
        keeper.info = keeper._greeting()
        atexit.register(keeper.close)
        return keeper

    def _greeting(self) -> GpuInfo:
        """Wait for the keeper's first message."""
        records: list[Any] = []
        silence = f"no answer in {_START_TIMEOUT_S} s"
        if select.select([self._pipe], [], [], _START_TIMEOUT_S)[0]:
            silence = "it ended at once"
            records += decode(self._pipe.recv(MESSAGE_BYTES))
        if not records or "error" in records[-1]:
            self.alive = False
            self._pipe.close()
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_TIMEOUT_S)
            if records:
                raise PerseusError("keeper-start", detail=records[-1]["error"])
            self._reset_elsewhere()  # calibrating may have locked them
            raise PerseusError("keeper-start", detail="; ".join([silence, *self._notices]))
        *told, record = records
        self._notices += [notice["notice"] for notice in told]
        record["supported_clocks_mhz"] = tuple(record["supported_clocks_mhz"])
        record["calibration"] = Calibration.from_json(record["calibration"])
        return GpuInfo(**record)

    def set_mhz(self, mhz: int) -> None:
        """Ask for an SM clock and return at once; an equal one is not asked for again."""
        if mhz == self._target or not self.alive:
            return
        try:
            self._pipe.send(Request(mhz, time.monotonic()).pack(), socket.MSG_DONTWAIT)
            self._target = mhz
        except BlockingIOError:
            self._notice(user_message("keeper-full"))
        except OSError:
            self._lost()

    def reset_clocks(self) -> None:
        """Ask for the default clocks and return at once."""
        self.set_mhz(RESET)

    def drain(self) -> KeeperUpdate:
        """Return what the keeper has sent since the last time, without waiting."""
        records: list[Any] = []
        while self.alive:
            try:
                message = self._pipe.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                message = b""
            if not message:
                self._lost()
                break
            records.extend(decode(message))
        return self._sorted(records)

    def _sorted(self, records: list[Any]) -> KeeperUpdate:
        for record in records:
            if isinstance(record, dict):
                self._notice(record["notice"])
        notices, self._notices = tuple(self._notices), []
        return KeeperUpdate(
            tuple(record for record in records if isinstance(record, Sample)),
            tuple(record for record in records if isinstance(record, Switch)),
            notices,
        )

    def _notice(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._notices.append(line)

    def _lost(self) -> None:
        """Say once that the keeper is gone, and have its clocks reset."""
        self.alive = False
        self._pipe.close()
        self._process.poll()
        self._notice(user_message("keeper-gone", pid=self._process.pid))
        self._reset_elsewhere()

    def _reset_elsewhere(self) -> None:
        """Have the clocks reset by another process, without waiting for it."""
        try:
            self._process = _spawn(self._command)
        except OSError as error:
            gpu = self.info.name if hasattr(self, "info") else "GPU"  # before its greeting nothing is known of it
            self._notice(user_message("keeper-reset", gpu=gpu, detail=error))

    def close(self) -> KeeperUpdate:
        """Reset the clocks and end the keeper; a second call does nothing.

        Returns:
            What the keeper had still to say.
        """
        atexit.unregister(self.close)
        records: list[Any] = []
        if self.alive and os.getpid() == self._owner:  # a forked child must not end its parent's keeper
            self.alive = False
            self._pipe.shutdown(socket.SHUT_WR)
            self._pipe.settimeout(_CLOSE_TIMEOUT_S)
            try:
                while message := self._pipe.recv(MESSAGE_BYTES):
                    records.extend(decode(message))
                self._process.wait(_CLOSE_TIMEOUT_S)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                with suppress(subprocess.TimeoutExpired):  # a driver call may not let it die
                    self._process.wait(0.5)
                self._reset_elsewhere()
            self._pipe.close()
        return self._sorted(records)


def _spawn(command: list[str], pipe: int = -1) -> subprocess.Popen[bytes]:
    """Start a keeper in a session of its own, out of reach of what kills the trainer's group.

    Without a pipe it resets the clocks and ends.
    """
    return subprocess.Popen(
        [*command, "--fd", str(pipe)],
        pass_fds=(pipe,) if pipe >= 0 else (),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
