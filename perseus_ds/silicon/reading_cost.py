"""Experiment: what does each reading of NVML take, alone and beside seven other processes that read?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from perseus_ds.silicon.lab import Lab
from perseus_ds.silicon.outcome import Limit, Outcome, judged, percentile
from perseus_ds.silicon.reading import READINGS

__all__ = ["judge", "measure", "reading_cost"]

NAME = "cost of reading"
_TIMES, _OTHERS = 300, 7
_PAUSE_S = 0.001
_TYPICAL_S = 0.005
_RARE_S = 0.050


def reading_cost(lab: Lab) -> Outcome:
    """Time all readings, alone and among others."""
    alone = measure(lab)
    with lab.other_readers(_OTHERS):
        among = measure(lab)
    return judge(alone, among)


def measure(lab: Lab) -> dict[str, list[float]]:
    """Return the times of each reading, in s."""
    taken_s: dict[str, list[float]] = {name: [] for name in READINGS}
    for _ in range(_TIMES):
        for name in READINGS:
            begin_s = lab.now_s()
            lab.readings[name]()
            taken_s[name].append(lab.now_s() - begin_s)
        lab.sleep(_PAUSE_S)
    return taken_s


def judge(alone: Mapping[str, Sequence[float]], among: Mapping[str, Sequence[float]]) -> Outcome:
    """Judge the times. The keeper reads every 5 ms while profiling; a counter may move every 50 ms.

    Args:
        alone: Times of each reading in s.
        among: The same beside other processes that read.
    """
    figures: dict[str, float | str] = {}
    limits = []
    for name in READINGS:
        typical_s, rare_s = statistics.median(alone[name]), percentile(among[name], 99)
        figures |= {f"{name}_alone_us": typical_s * 1e6, f"{name}_among_8_p99_us": rare_s * 1e6}
        limits.append(Limit(typical_s < _TYPICAL_S, f"{name} takes {typical_s * 1e3:.1f} ms, limit 5 ms"))
        limits.append(Limit(rare_s < _RARE_S, f"{name} takes {rare_s * 1e3:.1f} ms among 8, limit 50 ms"))
    return judged(NAME, figures, *limits)
