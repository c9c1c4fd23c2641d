"""The clock keeper: a process per GPU that sets clocks, reads energy, and always resets the clocks.

``ClockKeeper`` starts it. It imports neither torch nor numpy. The main thread sets clocks; a second one watches the
GPU. The keeper resets the clocks when its pipe ends, when its parent ends, or on SIGTERM. Clocks stay locked only if
trainer and keeper die at the same moment, with their container or control group. Then the node's service resets them
(``lease.py``), or without one the next start. To reset is to put the operator's own lock back, if there is one.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from perseus_ds.device.calibration import calibrated
from perseus_ds.device.driver import DriverError, Gpu, GpuLost, reset_patiently
from perseus_ds.device.lease import hold
from perseus_ds.device.opening import OpenedGpu, open_gpu
from perseus_ds.device.protocol import encode
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.setter import Setter
from perseus_ds.device.site_policy import SitePolicy
from perseus_ds.device.watcher import Watcher
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.timer_slack import end_waits_on_time

__all__ = ["main"]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perseus_ds.device.keeper")
    parser.add_argument("--fd", type=int, required=True, help="socket to the trainer; -1: reset the clocks and end")
    parser.add_argument("--cuda-index", type=int, required=True)
    parser.add_argument("--uuid")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--zeusd-address", required=True)
    parser.add_argument("--poll-s", type=float, required=True)
    parser.add_argument("--min-switch-interval-s", type=float, required=True)
    parser.add_argument("--max-mhz", type=int)
    parser.add_argument("--restore-mhz", type=int)
    parser.add_argument("--foreign-clocks", default="respect")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--cache-dir", type=Path)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the keeper until its trainer is gone.

    Args:
        arguments: Command line; default: ``sys.argv``.

    Returns:
        Exit code: 0, or 1 after telling the trainer that the GPU is not usable.
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
            zeusd_address=options.zeusd_address,
            exclusive=pipe is not None,
            policy=SitePolicy(options.max_mhz, options.restore_mhz),
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
    """Serve the trainer; reset the clocks at the end, for any reason."""
    gpu, send_queue, stopping = opened.gpu, SendQueue(pipe), threading.Event()
    lease = hold(gpu.uuid, options.restore_mhz) if gpu.sets_clocks else None
    setter: Setter | None = None
    try:
        calibration = calibrated(gpu, options.calibrate, options.cache_dir, send_queue.tell)
        send_queue.put({**greeting, "calibration": calibration._asdict()})
        send_queue.flush()
        watcher = Watcher(gpu, send_queue, calibration, options.poll_s)
        threading.Thread(target=watcher.watch, args=(stopping,), daemon=True).start()
        respects = options.foreign_clocks == "respect"
        end_waits_on_time()
        setter = Setter(gpu, pipe, send_queue, watcher, options.min_switch_interval_s, respects)
        setter.serve()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stopping.set()
        left_to_others = setter is not None and setter.left_to_others
        if (left_to_others or _give_back(gpu, send_queue)) and lease is not None:
            lease.end()
        send_queue.close()


def _give_back(gpu: Gpu, send_queue: SendQueue) -> bool:
    """Reset the clocks, or report the failure; return whether none is locked any more."""
    try:
        reset_patiently(gpu)
    except GpuLost:
        pass  # it has no clocks any more
    except DriverError as error:
        line = user_message("keeper-reset", gpu=f"{gpu.name} {gpu.uuid}", detail=error)
        send_queue.tell("keeper-reset", line)
        return False
    return True


def _greeting(opened: OpenedGpu) -> dict[str, Any]:
    """Return the trainer's data about the GPU."""
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
        "modes": gpu.modes(),
        "sets_clocks": gpu.sets_clocks,
    }


if __name__ == "__main__":
    sys.exit(main())
