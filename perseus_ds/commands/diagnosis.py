"""What ``perseus-ds doctor`` looks at. No check changes anything unless it is told to."""

from __future__ import annotations

import importlib
import os
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from perseus_ds.config import Config
from perseus_ds.device.gpu import DEFAULT_ZEUSD_ADDRESS
from perseus_ds.messages import PerseusError, one_line

__all__ = ["Finding", "check_files", "check_frameworks", "check_gloo", "check_gpus", "check_zeusd"]

_CAP_SYS_ADMIN = 21  # linux/capability.h
_FRAMEWORKS = (("deepspeed", "deepspeed"), ("megatron-core", "megatron.core"))


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table.

    Attributes:
        check: What was looked at.
        status: ``good``, ``bad`` (Perseus cannot work so), or ``note`` (works, but know it).
        found: What was found.
        remedy: What to do about it; empty when good.
    """

    check: str
    status: Literal["good", "bad", "note"]
    found: str
    remedy: str = ""


def check_gpus(simulated: bool, must_set_clocks: bool, try_clocks: bool) -> Iterator[Finding]:
    """Look at the driver and every GPU.

    Args:
        simulated: Whether the configuration asks for virtual GPUs, so that real ones are not needed.
        must_set_clocks: Whether this process itself has to set them: not with zeusd, not with ``mode: observe``.
        try_clocks: Reset every GPU's clocks to see whether it is permitted. Disturbs a job that has set them.
    """
    import pynvml

    from perseus_ds.device.nvml import initialise_nvml

    if simulated:
        yield Finding("GPU", "good", "simulated GPUs, as the configuration asks for")
        return
    try:
        initialise_nvml()
        count = pynvml.nvmlDeviceGetCount()
    except (PerseusError, pynvml.NVMLError) as error:
        yield Finding(
            "GPU",
            "bad",
            f"none on this machine: {_cause(error)}",
            "here only plan, emulate, report and training on simulated GPUs work ('simulator' in the YAML)",
        )
        return
    if count == 0:
        yield Finding("GPU", "bad", "the driver knows none", "see nvidia-smi -L and the container's GPU options")
    for index in range(count):
        yield from _check_gpu(index, must_set_clocks, try_clocks)


def _check_gpu(index: int, must_set_clocks: bool, try_clocks: bool) -> Iterator[Finding]:
    import pynvml

    from perseus_ds.device.nvml import NvmlGpu

    name = f"GPU {index}"
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = NvmlGpu(handle)
    except (PerseusError, pynvml.NVMLError) as error:
        yield _refused(name, error)
        return
    yield Finding(name, "good", f"{gpu.name}, driver {gpu.driver_version}; MIG is off")
    clocks = gpu.supported_clocks_mhz
    yield Finding(f"{name}: clocks", "good", f"{len(clocks)} from {clocks[-1]} to {clocks[0]} MHz")
    yield _energy_counter(f"{name}: energy counter", gpu)
    if must_set_clocks:
        yield _permission(f"{name}: permission", gpu, try_clocks)
    yield from _settings(name, handle)


def _energy_counter(check: str, gpu: Any) -> Finding:
    try:
        return Finding(check, "good", f"{gpu.energy_j():.0f} J since the driver was loaded")
    except PerseusError as error:
        return _refused(check, error)


def _permission(check: str, gpu: Any, try_clocks: bool) -> Finding:
    if try_clocks:
        try:
            gpu.reset_clocks()
        except PerseusError as error:
            return _refused(check, error)
        return Finding(check, "good", "this process may set clocks (it has just reset them)")
    if _may_administrate():
        return Finding(check, "good", "this process is root or has CAP_SYS_ADMIN; --try-clocks makes sure")
    error = PerseusError("nvml-no-permission", gpu=check, action="set clocks")
    return Finding(check, "bad", "this process is neither root nor has CAP_SYS_ADMIN", _remedy(error))


def _settings(name: str, handle: Any) -> Iterator[Finding]:
    """Yield what is worth knowing about persistence and power limit, where the driver tells."""
    import pynvml

    try:
        persistent = pynvml.nvmlDeviceGetPersistenceMode(handle)
    except pynvml.NVMLError:
        persistent = True
    if not persistent:
        yield Finding(
            f"{name}: persistence", "note", "off: clocks are forgotten when no process uses the GPU", "nvidia-smi -pm 1"
        )
    try:
        limit_w = pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
        default_w = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000
    except pynvml.NVMLError:
        return
    if limit_w < default_w:
        yield Finding(
            f"{name}: power limit",
            "note",
            f"{limit_w:.0f} W of {default_w:.0f} W: high clocks may not be reached",
            "nothing to do if it is meant so; else nvidia-smi -pl",
        )
    else:
        yield Finding(f"{name}: power limit", "good", f"{limit_w:.0f} W")


def check_zeusd(address: str = DEFAULT_ZEUSD_ADDRESS, needed: bool = False) -> Finding:
    """Ask zeusd whether it is there.

    Args:
        address: UNIX socket or ``host:port``.
        needed: Whether the configuration has chosen it.
    """
    from perseus_ds.device.zeusd import ask_zeusd

    try:
        status, _ = ask_zeusd(address, "GET", "/discover")
    except PerseusError as error:
        if needed:
            return _refused("zeusd", error)
        return Finding("zeusd", "note", f"not at {address}", "only needed where processes may not set clocks")
    return Finding("zeusd", "good", f"answers at {address} (HTTP {status})")


def check_frameworks() -> Iterator[Finding]:
    """Look whether the installed frameworks are supported and every patch target is there. Imports them."""
    from perseus_ds.patches import INTEGRATIONS

    installed = False
    for distribution, package in _FRAMEWORKS:
        try:
            found = f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            yield Finding(distribution, "note", "not installed", f"pip install 'perseus_ds[{package.split('.')[0]}]'")
            continue
        installed = True
        integration = next(one for one in INTEGRATIONS if one.package == package)
        try:
            _import_quietly(package)
            integration.check()
        except PerseusError as error:
            yield _refused(distribution, error)
        except Exception as error:
            yield Finding(distribution, "bad", f"{found} cannot be imported: {one_line(error)}", "reinstall it")
        else:
            hooks = len(integration.targets())
            yield Finding(distribution, "good", f"{found}: all {hooks} patch targets are there")
    if not installed:
        yield Finding("framework", "bad", "neither DeepSpeed nor Megatron-Core", "install the one you train with")


def check_gloo() -> Finding:
    """Connect two ends of a gloo group on this host: the control bus needs no more than that, on every host."""
    try:
        import torch
        import torch.distributed as distributed
    except ImportError:
        return Finding("gloo", "note", "torch is not installed", "install torch")
    store: Any = vars(distributed)["HashStore"]()
    errors: list[Exception] = []

    def join(rank: int) -> None:
        try:
            group: Any = distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=10))
            group.allreduce([torch.ones(1)]).wait()
        except Exception as error:
            errors.append(error)

    ends = [threading.Thread(target=join, args=(rank,), daemon=True) for rank in range(2)]
    for end in ends:
        end.start()
    for end in ends:
        end.join(20)
    if errors or any(end.is_alive() for end in ends):
        cause = one_line(errors[0]) if errors else "no answer in 20 s"
        return Finding(
            "gloo",
            "bad",
            f"two processes of this host cannot connect: {cause}",
            "set GLOO_SOCKET_IFNAME, see /etc/hosts",
        )
    return Finding("gloo", "good", f"connects on this host ({os.uname().nodename})")


def check_files(config: Config | None) -> Iterator[Finding]:
    """Look at the directories and files that the configuration names.

    Args:
        config: None: only the present directory is looked at.
    """
    places = {"run directory": config.run_dir if config else Path("runs")}
    if config and config.profiling.cache_dir:
        places["cache directory"] = config.profiling.cache_dir
    for check, path in places.items():
        yield _place(check, path)
    if config and config.profiling.profile:
        from perseus_ds.profiling.table import read_profile

        try:
            profile = read_profile(config.profiling.profile)
        except PerseusError as error:
            yield _refused("profile", error)
        else:
            yield Finding("profile", "good", f"{config.profiling.profile}: {profile.stages} stages")


def _place(check: str, path: Path) -> Finding:
    """Look whether a directory, which need not exist yet, can be written to."""
    try:
        base = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        if base.is_dir() and os.access(base, os.W_OK | os.X_OK):
            free_gb = shutil.disk_usage(base).free / 1e9
            return Finding(check, "good", f"{path}: can be written to, {free_gb:.0f} GB free")
        detail = f"{base} is not writable"
    except OSError as error:  # a parent that this user may not enter, a file system that is gone
        detail = one_line(error)
    refusal = PerseusError("run-dir-not-writable", file="perseus", path=path, detail=detail)
    return Finding(check, "bad", f"{path}: {detail}", _remedy(refusal))


def _import_quietly(package: str) -> None:
    """Import what prints and warns while it is imported: standard output may have to be JSON."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        importlib.import_module(package)


def _may_administrate() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return os.geteuid() == 0
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


def _refused(check: str, error: Exception) -> Finding:
    return Finding(check, "bad", _cause(error), _remedy(error))


def _cause(error: Exception) -> str:
    """Return what is wrong, without remedy and code."""
    return one_line(error).partition("; ")[0] if isinstance(error, PerseusError) else one_line(error)


def _remedy(error: Exception) -> str:
    return one_line(error).partition("; ")[2] if isinstance(error, PerseusError) else "see nvidia-smi and dmesg"
