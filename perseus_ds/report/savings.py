"""What plans save, by the baselines that were refreshed meanwhile."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

__all__ = ["SavingPoint", "Savings"]

# Two-sided 95 % quantiles of Student's t for 3 to 8 values.
_STUDENT_T = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365)


@dataclass(frozen=True)
class SavingPoint:
    """The saving at one time of the run.

    Attributes:
        iteration: The latest refreshed baseline that counts.
        saving: Mean over the latest refreshed baselines, a fraction.
        half_width: Of its 95 % confidence interval; None with fewer than three of them.
    """

    iteration: int
    saving: float
    half_width: float | None

    @property
    def in_vain(self) -> bool:
        """Whether the plans surely save nothing."""
        return self.half_width is not None and self.saving + self.half_width <= 0.0


class Savings:
    """The saving over time: each refreshed baseline against the plan's iterations around it."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=2 + len(_STUDENT_T))

    def take(self, event: Mapping[str, Any]) -> SavingPoint | None:
        """Take in an event of ``events.jsonl``, and return the saving where it is a refreshed baseline."""
        if event["event"] in ("plans", "objective"):  # other work, or another saving
            self._recent.clear()
        if event["event"] != "baseline":
            return None
        recent, half_width = self._recent, None
        recent.append(event["saving"])
        if len(recent) > 2:
            half_width = _STUDENT_T[len(recent) - 3] * stdev(recent) / math.sqrt(len(recent))
        return SavingPoint(event["iteration"], fmean(recent), half_width)
