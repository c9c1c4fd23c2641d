"""``perseus-ds clock-service``: resets the clocks of jobs that were killed together with their clock keepers.

It runs once per node, as root; see ``launch_scripts/clock_service_setup.sh``.
"""

from __future__ import annotations

import argparse
import grp
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

from perseus_ds.device.driver import reset_patiently
from perseus_ds.device.lease import ALIVE_FILE, Orphan, lease_directory, orphans
from perseus_ds.device.opening import open_driver
from perseus_ds.device.site_policy import SitePolicy
from perseus_ds.messages import PerseusError, one_line

__all__ = ["add_parser", "run"]

_LOOK_S = 0.5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "clock-service", help="reset clocks whose job was killed, once per node", description=__doc__
    )
    parser.add_argument("--group", metavar="NAME", help="who may have leases besides root; default: nobody")


def run(arguments: argparse.Namespace) -> int:
    """Look after the leases of this node until SIGTERM.

    Returns:
        Exit code: 0, or 1 if the directory of the leases is not usable.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    directory = lease_directory()
    try:
        _prepare(directory, arguments.group)
    except (OSError, KeyError) as error:
        print(f"{directory}: cannot keep leases there: {one_line(error)}; run it as root", file=sys.stderr)
        return 1
    print(f"clocks whose holder is gone are reset; leases are in {directory}", flush=True)
    told: set[str] = set()
    while True:
        (directory / ALIVE_FILE).touch()
        for orphan in orphans(directory):
            line = _settle(orphan, directory)
            if line and line not in told:
                told.add(line)
                print(line, flush=True)
        if len(told) > 1000:
            told.clear()
        time.sleep(_LOOK_S)


def _prepare(directory: Path, group: str | None) -> None:
    """Make the directory: leases are written by root and by the group, and looked at by root alone."""
    directory.mkdir(exist_ok=True)
    (directory / ALIVE_FILE).touch(mode=0o644)
    if group is not None:
        os.chown(directory, -1, grp.getgrnam(group).gr_gid)
    # Nobody removes another one's lease; all may see that the service is alive.
    os.chmod(directory, 0o711 if group is None else 0o1771)


def _settle(orphan: Orphan, directory: Path) -> str:
    """Reset the clocks of an orphaned lease and remove it; return the line to print."""
    if not orphan.uuid:
        orphan.path.unlink(missing_ok=True)
        return f"{orphan.path}: not a lease; removed"
    try:
        with closing(open_driver()) as driver:
            gpu = SitePolicy(restore_mhz=orphan.restore_mhz).govern(driver.open(driver.find(orphan.uuid)))
            if orphan not in orphans(directory):  # a new holder has come meanwhile
                return ""
            reset_patiently(gpu)
    except PerseusError as error:
        if error.code in ("gpu-not-found", "site-clock", "nvml-mig", "gpu-lost"):
            orphan.path.unlink(missing_ok=True)  # whatever is tried again would fail again
        return f"{orphan.uuid}: {one_line(error)}"
    orphan.path.unlink(missing_ok=True)
    return f"{gpu.name} {gpu.uuid}: its holder {orphan.path.name.partition('-')[0]} is gone; clocks reset"
