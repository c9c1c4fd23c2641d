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
        counter_sd: Its standard deviation by what counters that average leave in doubt, a fraction.
    """

    iteration: int
    saving: float
    half_width: float | None
    counter_sd: float = 0.0

    @property
    def in_vain(self) -> bool:
        """Whether the plans surely save nothing."""
        return self.half_width is not None and self.saving + self.half_width <= 0.0


class Savings:
    """The saving over time: each refreshed baseline against the plan's iterations around it."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float]] = deque(maxlen=2 + len(_STUDENT_T))

    def take(self, event: Mapping[str, Any]) -> SavingPoint | None:
        """Take in an event of ``events.jsonl``, and return the saving where it is a refreshed baseline."""
        if event["event"] in ("plans", "objective"):  # other work, or another saving
            self._recent.clear()
        if event["event"] != "baseline":
            return None
        # Runs of earlier versions do not tell the doubt.
        counter_sd = (1.0 - event["saving"]) * event.get("energy_sd_j", 0.0) / event.get("energy_j", 1.0)
        self._recent.append((event["saving"], counter_sd))
        (savings, doubts), half_width = zip(*self._recent, strict=True), None
        if len(savings) > 2:
            half_width = _STUDENT_T[len(savings) - 3] * stdev(savings) / math.sqrt(len(savings))
        return SavingPoint(event["iteration"], fmean(savings), half_width, math.hypot(*doubts) / len(doubts))
