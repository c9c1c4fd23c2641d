"""The checks of ``perseus-ds doctor`` besides GPUs: frameworks, network and files. No check changes anything."""

from __future__ import annotations

import importlib
import os
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any

from perseus_ds.commands.findings import Finding, cause_of, refused, remedy_of
from perseus_ds.config import Config
from perseus_ds.messages import PerseusError, one_line

__all__ = ["check_files", "check_frameworks", "check_gloo"]

_FRAMEWORKS = (("deepspeed", "deepspeed"), ("megatron-core", "megatron.core"))


def check_frameworks() -> Iterator[Finding]:
    """Check that the installed frameworks are supported and that every patch target exists. Imports them."""
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
            yield refused(distribution, error)
        except Exception as error:
            yield Finding(distribution, "bad", f"cannot import {found}: {one_line(error)}", "reinstall it")
        else:
            hooks = len(integration.targets())
            untested = integration.untested()
            yield Finding(distribution, "good", f"{found}: all {hooks} patch targets found")
            if untested:
                yield Finding(distribution, "note", cause_of(untested), remedy_of(untested))
    if not installed:
        yield Finding("framework", "bad", "neither DeepSpeed nor Megatron-Core", "install your training framework")


def check_gloo() -> Finding:
    """Connect two ends of a gloo group on this host. The control bus needs no more, on every host."""
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
    """Check the directories and files named in the configuration.

    Args:
        config: None: check only the current directory.
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
            yield refused("profile", error)
        else:
            yield Finding("profile", "good", f"{config.profiling.profile}: {profile.stages} stages")


def _place(check: str, path: Path) -> Finding:
    """Check that a directory is writable; it need not exist yet."""
    try:
        base = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        if base.is_dir() and os.access(base, os.W_OK | os.X_OK):
            free_gb = shutil.disk_usage(base).free / 1e9
            return Finding(check, "good", f"{path}: writable, {free_gb:.0f} GB free")
        detail = f"{base} is not writable"
    except OSError as error:  # a parent that this user may not enter, a file system that is gone
        detail = one_line(error)
    refusal = PerseusError("run-dir-not-writable", file="perseus", path=path, detail=detail)
    return Finding(check, "bad", f"{path}: {detail}", remedy_of(refusal))


def _import_quietly(package: str) -> None:
    """Import a package that prints and warns: standard output may have to be JSON."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        importlib.import_module(package)
