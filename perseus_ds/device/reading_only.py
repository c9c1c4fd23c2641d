"""A process that only reads GPUs: every NVML call that may set or reset anything raises.

An environment variable turns it on, so child processes inherit it: ``device/nvml.py`` looks at it before its first
call, and ``device/opening.py`` then opens GPUs for observing alone.
"""

from __future__ import annotations

import os
import re
from typing import Any

__all__ = ["READING_ONLY_VARIABLE", "SettingForbidden", "forbid_setting", "is_reading_only"]

READING_ONLY_VARIABLE = "PERSEUS_DS_READING_ONLY"
"""Environment variable: if set, this process and its children set nothing on any GPU."""

# What is not known to read is refused.
_READS = re.compile(
    r"nvml(Init\w*|Shutdown|ErrorString|(Device(WorkloadPowerProfile)?|System|Unit|GpuInstance|ComputeInstance)?Get\w*)"
)


class SettingForbidden(RuntimeError):
    """An NVML function was called that may set or reset something. No ``DriverError``: nothing may handle it."""


def is_reading_only() -> bool:
    """Return whether this process may only read."""
    return bool(os.environ.get(READING_ONLY_VARIABLE))


def forbid_setting() -> None:
    """Make this process and its later children read only, for the rest of their lives; a second call does nothing."""
    import pynvml  # who only asks whether this process reads loads no NVML

    os.environ[READING_ONLY_VARIABLE] = "1"
    original: Any = pynvml._nvmlGetFunctionPointer
    if getattr(original, "only_reads", False):
        return

    def pointer(name: str) -> Any:
        if not _READS.fullmatch(name):
            raise SettingForbidden(f"{name}: this process only reads GPUs ({READING_ONLY_VARIABLE} is set)")
        return original(name)

    pointer.only_reads = True  # pyright: ignore[reportFunctionMemberAccess]
    pynvml._nvmlGetFunctionPointer = pointer
