"""The checks of ``perseus-ds doctor`` on GPUs and their drivers. They change clocks only on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from perseus_ds.commands.findings import Finding, cause_of, refused, remedy_of
from perseus_ds.device.driver import Driver, Gpu, NotPermitted
from perseus_ds.device.lease import lease_directory, service_age_s
from perseus_ds.device.opening import DEFAULT_ZEUSD_ADDRESS, open_driver
from perseus_ds.device.site_policy import SitePolicy
from perseus_ds.messages import PerseusError

__all__ = ["check_clock_service", "check_gpus", "check_zeusd"]

_NO_RULES = SitePolicy()
_CAP_SYS_ADMIN = 21  # linux/capability.h
_SERVICE_LOOKS_S = 5.0


def check_gpus(
    simulated: bool, must_set_clocks: bool, try_clocks: bool, policy: SitePolicy = _NO_RULES
) -> Iterator[Finding]:
    """Check the driver and every GPU.

    Args:
        simulated: Whether the configuration names virtual GPUs, so that real ones are not needed.
        must_set_clocks: Whether this process itself sets them: not with zeusd, not with ``mode: observe``.
        try_clocks: Reset every GPU's clocks to test the permission. Disturbs other jobs that set clocks.
        policy: The site's rules for clocks.
    """
    if simulated:
        yield Finding("GPU", "good", "simulated GPUs, as configured")
        return
    try:
        driver = open_driver()
    except PerseusError as error:
        remedy = "use plan, emulate, report, or training on simulated GPUs ('simulator' in the YAML)"
        yield Finding("GPU", "bad", f"none on this machine: {cause_of(error)}", remedy)
        return
    with closing(driver):
        try:
            count = driver.count()
        except PerseusError as error:
            yield refused("GPU", error)
            return
        if count == 0:
            yield Finding("GPU", "bad", "the driver lists none", "see nvidia-smi -L and the container's GPU options")
        for index in range(count):
            yield from _check_gpu(driver, index, must_set_clocks, try_clocks, policy)


def _check_gpu(
    driver: Driver, index: int, must_set_clocks: bool, try_clocks: bool, policy: SitePolicy
) -> Iterator[Finding]:
    name = f"GPU {index}"
    try:
        gpu = policy.govern(driver.open(index))
    except PerseusError as error:
        yield refused(name, error)
        return
    yield Finding(name, "good", f"{gpu.name}, driver {gpu.driver_version}")
    clocks = gpu.supported_clocks_mhz
    yield Finding(f"{name}: clocks", "good", f"{len(clocks)} from {clocks[-1]} to {clocks[0]} MHz")
    yield _energy_counter(f"{name}: energy counter", gpu)
    if must_set_clocks:
        yield _permission(f"{name}: permission", driver, gpu, try_clocks)
    for remark in gpu.remarks():
        yield Finding(f"{name}: {remark.about}", "note" if remark.remedy else "good", remark.found, remark.remedy)


def _energy_counter(check: str, gpu: Gpu) -> Finding:
    try:
        return Finding(check, "good", f"{gpu.energy_j():.0f} J since the driver was loaded")
    except PerseusError as error:
        return refused(check, error)


def _permission(check: str, driver: Driver, gpu: Gpu, try_clocks: bool) -> Finding:
    if try_clocks:
        try:
            gpu.reset_clocks()
        except PerseusError as error:
            return refused(check, error)
        return Finding(check, "good", "this process may set clocks (it has just reset them)")
    if _may_administrate():
        return Finding(check, "good", "this process is root or has CAP_SYS_ADMIN; test it with --try-clocks")
    error = NotPermitted(driver=driver.title, gpu=check, action="set clocks")
    return Finding(check, "bad", "this process is neither root nor has CAP_SYS_ADMIN", remedy_of(error))


def _may_administrate() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return os.geteuid() == 0
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


def check_zeusd(address: str = DEFAULT_ZEUSD_ADDRESS, needed: bool = False) -> Finding:
    """Check whether zeusd answers.

    Args:
        address: UNIX socket or ``host:port``.
        needed: Whether the configuration selects it.
    """
    from perseus_ds.device.zeusd import ask_zeusd

    try:
        status, _ = ask_zeusd(address, "GET", "/discover")
    except PerseusError as error:
        if needed:
            return refused("zeusd", error)
        return Finding("zeusd", "note", f"not at {address}", "only needed without permission to set clocks")
    return Finding("zeusd", "good", f"answers at {address} (HTTP {status})")


def check_clock_service() -> Finding:
    """Tell who resets the clocks if trainer and clock keeper are killed together: the node's service, or nobody yet."""
    check, directory = "killed jobs", lease_directory()
    age_s = service_age_s(directory)
    if age_s is None or age_s > _SERVICE_LOOKS_S:
        found = "no clock service: if trainer and clock keeper are killed together, the next start resets the clocks"
        return Finding(check, "note", found, "run launch_scripts/clock_service_setup.sh as root, once per host")
    if not os.access(directory, os.W_OK | os.X_OK):
        found = f"the clock service runs, but this user may not write to {directory}: the next start resets the clocks"
        return Finding(check, "note", found, "let the service accept a group of this user (clock-service --group)")
    return Finding(check, "good", "the clock service resets clocks within 2 s once trainer and keeper are killed")
