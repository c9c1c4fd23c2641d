"""The phases of a job, and how much of them an earlier run makes unnecessary."""

from __future__ import annotations

from enum import Enum

__all__ = ["Phase", "Resumable"]


class Phase(str, Enum):
    """The purpose of an iteration."""

    WARMUP = "warm-up"
    BASELINE = "baseline"
    PROFILING = "profiling"
    SOLVING = "solving"
    ENFORCING = "enforcing"
    OBSERVING = "observing"  # plans are ready, but no clocks are set


class Resumable(Enum):
    """How much an earlier run has already measured."""

    NOTHING = "nothing"
    PROFILE = "profile"
    ALL = "all"  # traces and baseline too
