"""``perseus-ds reset-clocks``: the last resort after a crash that took the clock keeper along."""

from __future__ import annotations

import argparse
import sys

import pynvml

from perseus_ds.device.gpu import DEFAULT_ZEUSD_ADDRESS
from perseus_ds.device.nvml import initialise_nvml
from perseus_ds.device.opening import open_gpu
from perseus_ds.messages import PerseusError

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("reset-clocks", help="reset the clocks that a crash has left locked")
    parser.add_argument(
        "--gpu", type=int, action="append", metavar="N", help="NVML index; default: every GPU of this host"
    )
    parser.add_argument("--backend", choices=("auto", "nvml", "zeusd"), default="auto", help="who sets the clocks")
    parser.add_argument("--zeusd-address", default=DEFAULT_ZEUSD_ADDRESS, help="zeusd's UNIX socket, or host:port")


def run(arguments: argparse.Namespace) -> int:
    """Reset clocks and tell the outcome per GPU.

    Args:
        arguments: Parsed command line.

    Returns:
        Exit code: 0 when every GPU was reset, else 1.

    Raises:
        PerseusError: NVML does not start.
    """
    initialise_nvml()
    failed = False
    for index in arguments.gpu or range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            opened = open_gpu(index, arguments.backend, uuid=uuid, zeusd_address=arguments.zeusd_address)
        except (PerseusError, pynvml.NVMLError) as error:
            print(f"GPU {index}: {error}", file=sys.stderr)
            failed = True
            continue
        if opened.backend == "observe":
            print(f"GPU {index}: not reset: {opened.reason}", file=sys.stderr)
            failed = True
        else:
            print(f"GPU {index} ({opened.gpu.name}): clocks reset through {opened.backend}")
    return int(failed)
