"""Which rank this process is, before any framework knows."""

from __future__ import annotations

import os

__all__ = ["rank", "tells_for_all"]


def rank() -> int:
    """Return the rank that the launcher gave to this process; 0 without a launcher."""
    number = os.environ.get("RANK", "")
    return int(number) if number.isdecimal() else 0


def tells_for_all() -> bool:
    """Return whether this process tells people what every rank meets alike."""
    return rank() == 0
