"""The trainer's side of the clock keeper. Only ``start`` and ``close`` wait."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from perseus_ds import isolated
from perseus_ds.config import DeviceConfig
from perseus_ds.device.calibration import Calibration
from perseus_ds.device.protocol import MESSAGE_BYTES, RESET, Pace, PowerReading, Request, Sample, Switch, decode
from perseus_ds.messages import PerseusError, user_message

__all__ = ["ClockKeeper", "GpuInfo", "KeeperUpdate"]

_START_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 3.0
_AS_CONFIGURED = DeviceConfig()


@dataclass(frozen=True)
class GpuInfo:
    """The keeper's description of its GPU.

    Attributes:
        pid: The keeper's process.
        backend: Interface that sets the clocks: the driver, ``zeusd`` or ``observe``.
        reason: Reason for this backend.
        uuid: Unique identifier.
        name: Model.
        driver_version: Version of the driver.
        supported_clocks_mhz: Supported SM clocks, descending.
        power_limit_w: Enforced power limit.
        modes: Modes that change what instructions take and draw, such as ECC.
        sets_clocks: Whether clocks are set at all.
        calibration: Switch latency and counter period.
    """

    pid: int
    backend: str
    reason: str
    uuid: str
    name: str
    driver_version: str
    supported_clocks_mhz: tuple[int, ...]
    power_limit_w: float
    modes: str
    sets_clocks: bool
    calibration: Calibration


@dataclass(frozen=True)
class KeeperUpdate:
    """The keeper's records since the last call.

    Attributes:
        samples: Points of change of the energy counter, in order.
        switches: Results of the clock requests that reached the driver, in order.
        notices: Messages for people, each once per cause.
        powers: Renewals of the power that the driver shows, in order; none between rare readings.
    """

    samples: tuple[Sample, ...]
    switches: tuple[Switch, ...]
    notices: tuple[str, ...]
    powers: tuple[PowerReading, ...] = ()


class ClockKeeper:
    """A running keeper process; start one with ``ClockKeeper.start``.

    Attributes:
        info: The keeper's description of its GPU.
        alive: False once the keeper has died; clocks then stay at their defaults.
    """

    info: GpuInfo

    def __init__(self, process: subprocess.Popen[bytes], pipe: socket.socket, command: list[str]) -> None:
        """Use ``start`` instead."""
        self._process = process
        self._pipe = pipe
        self._command = command
        self._last = Request(RESET, 0.0)
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
        device: DeviceConfig = _AS_CONFIGURED,
        calibrate: bool = False,
        cache_dir: Path | None = None,
    ) -> ClockKeeper:
        """Start a keeper, clear locks left by a crash, and wait until it is ready.

        Args:
            cuda_index: CUDA's index of the rank's device.
            uuid: The device's UUID, if CUDA knows it.
            device: Interface that sets the clocks, intervals, and the site's rules.
            calibrate: Whether to measure switch latency and counter period, for one to five seconds.
            cache_dir: Directory of the calibrations; None: no cache.

        Returns:
            The keeper.

        Raises:
            PerseusError: The keeper did not start, or the GPU or the backend is not usable.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = {
            "--cuda-index": cuda_index,
            "--uuid": uuid,
            "--backend": device.backend,
            "--zeusd-address": device.zeusd_address,
            "--poll-s": device.counter_poll_s,
            "--min-switch-interval-s": device.min_switch_interval_s,
            "--max-mhz": device.max_mhz,
            "--restore-mhz": device.restore_mhz,
            "--foreign-clocks": device.foreign_clocks,
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
        if wait([self._pipe], _START_TIMEOUT_S):
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

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """Request an SM clock and return at once; a request without effect is dropped.

        Args:
            mhz: The clock.
            not_before_s: Earliest time for it on the monotonic clock; 0: at once. Earlier requests due then or later
                are cancelled.
        """
        if not self.alive or (mhz == self._last.mhz and not_before_s >= self._last.not_before_s):
            return
        request = Request(mhz, time.monotonic(), not_before_s)
        if self._send(request.pack()):
            self._last = request

    def set_pace(self, poll_s: float) -> None:
        """Let the keeper read the GPU at another interval from now on; returns at once."""
        if self.alive:
            self._send(Pace(poll_s).pack())

    def _send(self, message: bytes) -> bool:
        """Send a message without waiting, and return whether it has been sent."""
        try:
            self._pipe.send(message, socket.MSG_DONTWAIT)
            return True
        except BlockingIOError:
            self._notice(user_message("keeper-full"))
        except OSError:
            if self.alive:  # another thread may just have closed it
                self._lost()
        return False

    def reset_clocks(self) -> None:
        """Request the default clocks and return at once."""
        self.set_mhz(RESET)

    def drain(self) -> KeeperUpdate:
        """Return the keeper's records since the last call, without waiting."""
        records: list[Any] = []
        while self.alive:
            try:
                message = self._pipe.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                message = b""
            if not message:
                if self.alive:  # another thread may just have closed it
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
            tuple(record for record in records if isinstance(record, PowerReading)),
        )

    def _notice(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._notices.append(line)

    def _lost(self) -> None:
        """Report once that the keeper has died, and let another process reset its clocks."""
        self.alive = False
        self._pipe.close()
        self._process.poll()
        self._notice(user_message("keeper-gone", pid=self._process.pid))
        self._reset_elsewhere()

    def _reset_elsewhere(self) -> None:
        """Let another process reset the clocks, without waiting for it."""
        try:
            self._process = _spawn(self._command)
        except OSError as error:
            gpu = self.info.name if hasattr(self, "info") else "GPU"  # before its greeting nothing is known of it
            self._notice(user_message("keeper-reset", gpu=gpu, detail=error))

    def await_reset(self, timeout_s: float) -> None:
        """Wait for the process that resets the clocks of a keeper that has died.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        self._process.wait(timeout_s)

    def close(self) -> KeeperUpdate:
        """Reset the clocks and end the keeper; a second call does nothing.

        Returns:
            The keeper's last records.
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
    """Start a keeper in a session of its own, safe from signals to the trainer's group.

    Without a pipe it resets the clocks and ends.
    """
    return subprocess.Popen(
        [*command, "--fd", "0" if pipe >= 0 else "-1"],
        stdin=pipe if pipe >= 0 else subprocess.DEVNULL,  # a low number there: select takes none above 1,023
        start_new_session=True,
    )
