"""The lines of the table that ``perseus-ds doctor`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perseus_ds.messages import PerseusError, one_line

__all__ = ["Finding", "cause_of", "refused", "remedy_of"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table.

    Attributes:
        check: Name of the check.
        status: ``good``, ``bad`` (Perseus cannot work), or ``note`` (it works, with a remark).
        found: Result of the check.
        remedy: Remedy; empty when good.
    """

    check: str
    status: Literal["good", "bad", "note"]
    found: str
    remedy: str = ""


def refused(check: str, error: PerseusError) -> Finding:
    """Return the line for a check ended by an error."""
    return Finding(check, "bad", cause_of(error), remedy_of(error))


def cause_of(error: PerseusError) -> str:
    """Return the cause, without remedy and code."""
    return one_line(error).partition("; ")[0]


def remedy_of(error: PerseusError) -> str:
    """Return the remedy, with the code."""
    return one_line(error).partition("; ")[2]
