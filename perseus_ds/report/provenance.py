"""The software versions behind a run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["software_versions"]

_PACKAGES = ("perseus_ds", "torch", "deepspeed", "megatron-core", "numpy", "numba", "nvidia-ml-py")


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect a run."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
