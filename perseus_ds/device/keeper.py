"""The clock keeper: a process per GPU that sets clocks, reads energy, and always gives the clocks back.

``ClockKeeper`` starts it. It imports neither torch nor numpy. The main thread sets clocks; a second one watches the
GPU. When the pipe ends, its parent ends or SIGTERM arrives, the clocks are reset. Only what kills trainer and keeper
at one blow (a container or control group that is killed whole) leaves them locked: the next start clears them, or
``perseus-ds reset-clocks``.
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from perseus_ds.device.calibration import calibrated
from perseus_ds.device.gpu import PERMANENT, Gpu, reset_patiently
from perseus_ds.device.opening import OpenedGpu, open_gpu
from perseus_ds.device.protocol import RESET, Request, Switch, encode
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.watcher import Watcher
from perseus_ds.messages import PerseusError, user_message

__all__ = ["main"]

_PARENT_CHECK_S = 0.1
_RETRY_PAUSE_S = 0.05


class _Setter:
    """Sets the clocks that the trainer asks for.

    Args:
        gpu: The GPU.
        pipe: Socket to the trainer.
        send_queue: Where messages go.
        watcher: Told of every clock that was set.
        min_interval_s: Least time between two requests to the driver.
    """

    def __init__(
        self, gpu: Gpu, pipe: socket.socket, send_queue: SendQueue, watcher: Watcher, min_interval_s: float
    ) -> None:
        self._gpu = gpu
        self._pipe = pipe
        self._send_queue = send_queue
        self._watcher = watcher
        self._min_interval_s = min_interval_s
        self._refused = False

    def serve(self) -> None:
        """Set the clocks asked for until the trainer is gone."""
        parent, current, not_before_s = os.getppid(), RESET, -math.inf
        newest: Request | None = None
        superseded = 0
        while os.getppid() == parent:
            wait_s = _PARENT_CHECK_S if newest is None else max(0.0, not_before_s - time.monotonic())
            if select.select([self._pipe], [], [], min(wait_s, _PARENT_CHECK_S))[0]:
                arrived = self._receive()
                if arrived is None:
                    return
                superseded += len(arrived) - (newest is None)
                newest = arrived[-1]
            if newest is None or time.monotonic() < not_before_s:
                continue
            if newest.mhz == current or self._refused:
                newest = None
            elif self._set(newest, superseded):
                not_before_s = time.monotonic() + self._min_interval_s
                current, newest, superseded = newest.mhz, None, 0
            else:
                not_before_s = time.monotonic() + _RETRY_PAUSE_S

    def _receive(self) -> list[Request] | None:
        """Return every request that has arrived, or None when the trainer has closed the pipe."""
        arrived: list[Request] = []
        try:
            while message := self._pipe.recv(64, socket.MSG_DONTWAIT):
                arrived.append(Request.unpack(message))
        except BlockingIOError:
            return arrived
        except ConnectionResetError:
            pass  # the trainer has died with something of ours unread
        return None

    def _set(self, request: Request, superseded: int) -> bool:
        """Ask the driver for a clock and return whether it accepted."""
        try:
            if request.mhz == RESET:
                self._gpu.reset_clocks()
            else:
                self._gpu.lock_clock(request.mhz)
        except PerseusError as error:
            self._refused = error.code in PERMANENT
            self._send_queue.tell(error.code, str(error))
            return False
        self._watcher.expect(Switch(request.requested_s, time.monotonic(), math.nan, request.mhz, 0, superseded))
        return True


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perseus_ds.device.keeper")
    parser.add_argument("--fd", type=int, required=True, help="socket to the trainer; -1: reset the clocks and end")
    parser.add_argument("--cuda-index", type=int, required=True)
    parser.add_argument("--uuid")
    parser.add_argument("--pci-bus-id")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--zeusd-address", required=True)
    parser.add_argument("--poll-s", type=float, required=True)
    parser.add_argument("--min-switch-interval-s", type=float, required=True)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--cache-dir", type=Path)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the keeper until its trainer is gone.

    Args:
        arguments: Command line; default: ``sys.argv``.

    Returns:
        Exit code: 0, or 1 when the GPU cannot be used, which the trainer is told first.
    """
    options = _options(arguments)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pipe = socket.socket(fileno=options.fd) if options.fd >= 0 else None
    try:
        opened = open_gpu(
            options.cuda_index,
            options.backend,
            uuid=options.uuid,
            pci_bus_id=options.pci_bus_id,
            zeusd_address=options.zeusd_address,
            exclusive=pipe is not None,
        )
        greeting = _greeting(opened)
    except PerseusError as error:
        if pipe is None:
            print(error, file=sys.stderr)
        else:
            pipe.send(encode({"error": str(error)}))
        return 1
    if pipe is not None:
        _keep(opened, pipe, options, greeting)
    return 0


def _keep(opened: OpenedGpu, pipe: socket.socket, options: argparse.Namespace, greeting: dict[str, Any]) -> None:
    """Serve the trainer; give the clocks back whatever ends it."""
    gpu, send_queue, stopping = opened.gpu, SendQueue(pipe), threading.Event()
    try:
        calibration = calibrated(gpu, options.calibrate, options.cache_dir, send_queue.tell)
        send_queue.put({**greeting, "calibration": calibration._asdict()})
        send_queue.flush()
        watcher = Watcher(gpu, send_queue, calibration)
        threading.Thread(target=watcher.watch, args=(options.poll_s, stopping), daemon=True).start()
        _Setter(gpu, pipe, send_queue, watcher, options.min_switch_interval_s).serve()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stopping.set()
        _give_back(gpu, send_queue)
        send_queue.close()


def _give_back(gpu: Gpu, send_queue: SendQueue) -> None:
    """Reset the clocks, or say that it could not be done."""
    try:
        reset_patiently(gpu)
    except PerseusError as error:
        if error.code != "nvml-gpu-is-lost":  # which has no clocks any more
            line = user_message("keeper-reset", gpu=f"{gpu.name} {gpu.uuid}", detail=error)
            send_queue.tell("keeper-reset", line)


def _greeting(opened: OpenedGpu) -> dict[str, Any]:
    """Return what the trainer needs to know of the GPU."""
    gpu = opened.gpu
    return {
        "pid": os.getpid(),
        "backend": opened.backend,
        "reason": opened.reason,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "driver_version": gpu.driver_version,
        "supported_clocks_mhz": gpu.supported_clocks_mhz,
        "power_limit_w": gpu.power_limit_w(),
        "sets_clocks": gpu.sets_clocks,
    }


if __name__ == "__main__":
    sys.exit(main())
