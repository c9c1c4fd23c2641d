"""``perseus-ds reset-clocks``: the last resort after a crash that also ended the clock keeper."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from perseus_ds.device.driver import Driver
from perseus_ds.device.opening import DEFAULT_ZEUSD_ADDRESS, DRIVERS, open_driver, open_gpu
from perseus_ds.device.site_policy import SitePolicy
from perseus_ds.messages import PerseusError

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("reset-clocks", help="reset clocks left locked by a crash")
    parser.add_argument(
        "--gpu", type=int, action="append", metavar="N", help="the driver's index; default: every GPU of this host"
    )
    parser.add_argument("--backend", choices=("auto", *DRIVERS, "zeusd"), default="auto", help="who sets the clocks")
    parser.add_argument(
        "--restore-mhz", type=int, metavar="MHZ", help="lock them at this clock instead, as before the job"
    )
    parser.add_argument("--zeusd-address", default=DEFAULT_ZEUSD_ADDRESS, help="zeusd's UNIX socket, or host:port")


def run(arguments: argparse.Namespace) -> int:
    """Reset clocks and print the result per GPU.

    Args:
        arguments: Parsed command line.

    Returns:
        Exit code: 0 if every GPU was reset, else 1.

    Raises:
        PerseusError: The driver does not start.
    """
    with closing(open_driver()) as driver:
        indices = arguments.gpu or range(driver.count())
        reset = [_reset(driver, index, arguments) for index in indices]
        return int(not all(reset))


def _reset(driver: Driver, index: int, arguments: argparse.Namespace) -> bool:
    """Reset one GPU's clocks, print the result, and return whether it worked."""
    try:
        uuid = driver.open(index).uuid  # by its index the GPU could be one that CUDA_VISIBLE_DEVICES puts there
        opened = open_gpu(
            index,
            arguments.backend,
            uuid=uuid,
            zeusd_address=arguments.zeusd_address,
            policy=SitePolicy(restore_mhz=arguments.restore_mhz),
        )
    except PerseusError as error:
        print(f"GPU {index}: {error}", file=sys.stderr)
        return False
    if opened.backend == "observe":
        print(f"GPU {index}: not reset: {opened.reason}", file=sys.stderr)
        return False
    done = f"locked at {arguments.restore_mhz} MHz" if arguments.restore_mhz else "reset"
    print(f"GPU {index} ({opened.gpu.name}): clocks {done} through {opened.backend}")
    return True
