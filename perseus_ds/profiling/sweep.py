"""Which clock each instruction of the next iteration runs at, so that a few iterations tell all curves.

Published sweeps run whole iterations at one clock, several per clock. Here consecutive instructions of a
rank share a clock (a block) and several blocks fit into one iteration; all ranks sweep at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, hypot

import numpy as np

from perseus_ds.config import ProfilingConfig
from perseus_ds.profiling.table import CurveKey, ProfilePoint

__all__ = ["Sweep"]

_CLEAN_PER_BLOCK = 3
_ENOUGH = 6
_ENOUGH_PRECISE = 3
_PRECISE = 0.015
_UNLIKELY = 0.25


class Sweep:
    """The state of one rank's sweep. Deterministic: ranks that observe the same choose the same.

    Without ``observe`` every clock is visited until it has enough instances. With it, clocks that the
    frontier cannot use are left out, and the sweep ends when the others are known well enough.

    Args:
        order: The curve of each instruction of an iteration, in the rank's program order.
        clocks_mhz: Supported clocks, descending.
        config: Mode and bounds.
        settle_s: From a clock request to the new clock, at worst.
        instruction_s: Mean duration of an instruction at the highest clock.
    """

    def __init__(
        self,
        order: Sequence[CurveKey],
        clocks_mhz: Sequence[int],
        config: ProfilingConfig,
        settle_s: float = 0.0,
        instruction_s: float = 1.0,
    ) -> None:
        self._order = tuple(order)
        self._config = config
        self._settling = max(1, ceil(settle_s / instruction_s))
        self._clocks = _candidates(clocks_mhz, config)
        self._weight = {(key, mhz): 1.0 for key in set(order) for mhz in self._clocks}
        self._visits: Counter[tuple[CurveKey, int]] = Counter()
        self._precise = True
        self._observed = False
        self.iterations = 0

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """The clocks to be tried, descending."""
        return self._clocks

    @property
    def done(self) -> bool:
        """Whether every useful point is known, or the iterations are used up."""
        wanted = (state for state, weight in self._weight.items() if weight > 0)
        enough = _ENOUGH_PRECISE if self._observed else _ENOUGH
        told = self._precise and all(self._visits[state] >= enough for state in wanted)
        return told or self.iterations >= self._config.max_iterations

    def next_frequencies(self) -> tuple[int, ...]:
        """Choose the next iteration's clocks, and count it as run.

        Returns:
            MHz per instruction, aligned with ``order``.
        """
        self.iterations += 1
        blocks = self._blocks()
        borders = [round(index * len(self._order) / blocks) for index in range(blocks + 1)]
        chosen: list[int] = []
        for first, last in pairwise(borders):
            settled = self._order[min(first + self._settling, last - 1) : last]
            mhz = max(self._clocks, key=lambda clock: (self._value(settled, clock), clock))
            self._visits.update((key, mhz) for key in settled)
            chosen += [mhz] * (last - first)
        return tuple(chosen)

    def observe(self, curves: Mapping[CurveKey, Sequence[ProfilePoint]], blocking_power_w: float) -> None:
        """Leave out what the frontier cannot use.

        A curve ends where an instruction is slowed by more than the bound, and after so many consecutive
        increases of its effective energy, which is what the frontier minimises: e - P_blocking t. Clocks
        below the least effective energy are visited for the stop rule only, not until they are precise.

        Args:
            curves: Points measured so far, by frequency descending.
            blocking_power_w: Power of a waiting GPU.
        """
        half_widths = []
        for key, points in curves.items():
            effective = [point.energy_j - blocking_power_w * point.time_s for point in points]
            slow = [point.time_s > self._config.max_slowdown * points[0].time_s for point in points]
            end = min(slow.index(True) if any(slow) else len(points), self._stop(points, effective))
            least = int(np.argmin(effective[:end]))
            half_widths += [point.energy_ci_j / point.energy_j for point in points[: least + 1]]
            for mhz in self._clocks:
                if (key, mhz) in self._weight:
                    self._weight[key, mhz] = 1.0
                    if end < len(points) and mhz <= points[end].frequency_mhz:
                        self._weight[key, mhz] = 0.0
                    elif points[-1].frequency_mhz <= mhz < points[least].frequency_mhz:
                        self._weight[key, mhz] = _UNLIKELY
        self._observed = True
        self._precise = bool(half_widths) and float(np.mean(half_widths)) < _PRECISE

    def _stop(self, points: Sequence[ProfilePoint], effective: Sequence[float]) -> int:
        """Return the number of points up to and including the run of increases that ends the curve."""
        run = 0
        for index, step in enumerate(np.diff(effective), start=1):
            run = run + 1 if step > 0 else 0
            if run >= self._config.stop_after_increases:
                first = index - run
                # A rise within the noise ends nothing.
                doubt_j = hypot(points[first].energy_ci_j, points[index].energy_ci_j)
                if effective[index] - effective[first] > doubt_j:
                    return index + 1
        return len(effective)

    def _blocks(self) -> int:
        if self._config.mode == "iteration":
            return 1
        return max(1, len(self._order) // (self._settling + _CLEAN_PER_BLOCK))

    def _value(self, keys: Sequence[CurveKey], clock: int) -> float:
        """What running ``keys`` at ``clock`` would add: new points first, then the least visited."""
        return sum(self._weight[key, clock] / (1 + self._visits[key, clock]) for key in keys)


def _candidates(clocks_mhz: Sequence[int], config: ProfilingConfig) -> tuple[int, ...]:
    """Return the clocks to try, descending, spread evenly over those that are certainly fast enough."""
    # No instruction slows down by more than the clock does.
    fast = sorted((mhz for mhz in clocks_mhz if mhz * config.max_slowdown >= max(clocks_mhz)), reverse=True)
    wanted = min(config.frequencies or len(fast), len(fast))
    if config.mode == "iteration":
        wanted = min(wanted, config.max_iterations)
    return tuple(fast[round(index)] for index in np.linspace(0, len(fast) - 1, wanted))
