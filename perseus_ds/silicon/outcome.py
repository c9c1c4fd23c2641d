"""What an experiment found, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Limit", "Outcome", "judged", "percentile"]


class Limit(NamedTuple):
    """One pass line.

    Attributes:
        holds: Whether the experiment is within it.
        why: What is wrong if not.
    """

    holds: bool
    why: str


@dataclass(frozen=True)
class Outcome:
    """The result of one experiment.

    Attributes:
        name: Name of the experiment.
        passed: Whether all its limits hold.
        figures: What was measured, units in the names.
        why: The limits that do not hold; empty if it passed.
    """

    name: str
    passed: bool
    figures: Mapping[str, float | str]
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def judged(name: str, figures: Mapping[str, float | str], *limits: Limit) -> Outcome:
    """Return an outcome that passes if every limit holds."""
    why = "; ".join(limit.why for limit in limits if not limit.holds)
    return Outcome(name, not why, figures, why)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile; infinite without any values, so that no limit holds."""
    return float(np.percentile(values, percent)) if len(values) else float("inf")
