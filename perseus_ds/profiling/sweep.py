"""Chooses the clock of each instruction in the next iteration, so that few iterations reveal all curves.

Published sweeps run whole iterations at one clock, several per clock. Here consecutive instructions of a rank share a
clock (a block), and several blocks fit into one iteration. All ranks sweep at the same time.

The first iterations toggle between two neighbouring clocks: they tell what a clock request costs. Those clocks are
in the middle, where no power limit interferes. The iterations are alike, so that the second can ask ahead, as plans do.
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
_TOGGLING = 2
_AFFORDS_TOGGLING = 10


class Sweep:
    """The state of one rank's sweep. It is deterministic: equal observations give equal choices.

    Without ``observe`` the sweep visits every clock until it has enough instances. With it, the sweep skips clocks
    that are useless to the frontier, and ends once the others are precise.

    Args:
        order: The curve of each instruction of an iteration, in the rank's program order.
        clocks_mhz: Supported clocks, descending.
        config: Mode and bounds.
        settle_s: Longest time from a clock request to the new clock.
        instruction_s: Mean duration of an instruction at the highest clock.
        start: Share of the clocks, from the top, that others come before. Stages that start apart wait for each other
            more at some times than at others, which tells the power of waiting from that of work.
    """

    def __init__(
        self,
        order: Sequence[CurveKey],
        clocks_mhz: Sequence[int],
        config: ProfilingConfig,
        settle_s: float = 0.0,
        instruction_s: float = 1.0,
        start: float = 0.0,
    ) -> None:
        self._order = tuple(order)
        self._config = config
        self._settling = max(1, ceil(settle_s / instruction_s))
        self._clocks = _candidates(clocks_mhz, config)
        first = int(start * len(self._clocks))
        self._in_turn = (*self._clocks[first:], *self._clocks[:first])
        self._weight = {(key, mhz): 1.0 for key in set(order) for mhz in self._clocks}
        self._visits: Counter[tuple[CurveKey, int]] = Counter()
        self._precise = True
        self._observed = False
        affordable = config.mode != "iteration" and config.max_iterations >= _AFFORDS_TOGGLING
        self._toggling = _TOGGLING * (affordable and len(self._clocks) > 1)
        self.iterations = 0

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """The clocks to try, descending."""
        return self._clocks

    @property
    def toggles(self) -> bool:
        """Whether the latest iteration toggles: a request has to come upon an instruction to tell its cost."""
        return 0 < self.iterations <= self._toggling

    @property
    def done(self) -> bool:
        """Whether every useful point is known, or no iterations are left."""
        wanted = (state for state, weight in self._weight.items() if weight > 0)
        enough = _ENOUGH_PRECISE if self._observed else _ENOUGH
        told = self._precise and all(self._visits[state] >= enough for state in wanted)
        return told or not self.iterations_left

    @property
    def iterations_left(self) -> int:
        """Iterations until the sweep ends, whatever it knows."""
        return max(0, self._config.max_iterations - self.iterations)

    def next_frequencies(self) -> tuple[int, ...]:
        """Choose the next iteration's clocks, and count it as run.

        Returns:
            MHz per instruction, aligned with ``order``.
        """
        self.iterations += 1
        if self.iterations <= self._toggling:
            middle = len(self._clocks) // 2
            return tuple(self._clocks[middle - index % 2] for index in range(len(self._order)))
        blocks = self._blocks()
        borders = [round(index * len(self._order) / blocks) for index in range(blocks + 1)]
        chosen: list[int] = []
        for first, last in pairwise(borders):
            settled = self._order[min(first + self._settling, last - 1) : last]
            mhz = max(self._in_turn, key=lambda clock: self._value(settled, clock))
            self._visits.update((key, mhz) for key in settled)
            chosen += [mhz] * (last - first)
        return tuple(chosen)

    def observe(
        self,
        curves: Mapping[CurveKey, Sequence[ProfilePoint]],
        blocking_power_w: float,
        sustained_mhz: Mapping[CurveKey, int],
    ) -> None:
        """Skip clocks that are useless to the frontier.

        A curve ends at the bound on the slowdown of an instruction, or after a run of increases of the effective
        energy e - P_blocking t, which the frontier minimises. Clocks below the least effective energy only serve that
        stop rule and need no precision.

        Args:
            curves: Points measured so far, by frequency descending.
            blocking_power_w: Power of a waiting GPU.
            sustained_mhz: The highest clock that can be held, of curves that cannot hold the highest. The power limit
                makes the same of all clocks above.
        """
        half_widths = []
        for key, points in curves.items():
            effective = [point.energy_j - blocking_power_w * point.time_s for point in points]
            slow = [point.time_s > self._config.max_instruction_slowdown * points[0].time_s for point in points]
            end = min(slow.index(True) if any(slow) else len(points), self._stop(points, effective))
            least = int(np.argmin(effective[:end]))
            half_widths += [point.energy_ci_j / point.energy_j for point in points[: least + 1]]
            for mhz in self._clocks:
                if (key, mhz) in self._weight:
                    self._weight[key, mhz] = 1.0
                    unheld = sustained_mhz.get(key, mhz) < mhz < self._clocks[0]
                    if unheld or (end < len(points) and mhz <= points[end].frequency_mhz):
                        self._weight[key, mhz] = 0.0
                    elif points[-1].frequency_mhz <= mhz < points[least].frequency_mhz:
                        self._weight[key, mhz] = _UNLIKELY
        self._observed = True
        self._precise = bool(half_widths) and float(np.mean(half_widths)) < _PRECISE

    def _stop(self, points: Sequence[ProfilePoint], effective: Sequence[float]) -> int:
        """Return the number of points up to the end of the run of increases that ends the curve."""
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
        """The value of running ``keys`` at ``clock``: new points first, then the least visited."""
        return sum(self._weight[key, clock] / (1 + self._visits[key, clock]) for key in keys)


def _candidates(clocks_mhz: Sequence[int], config: ProfilingConfig) -> tuple[int, ...]:
    """Return the clocks to try, descending and evenly spaced over those that are certainly fast enough."""
    # No instruction slows down by more than the clock does.
    fast = sorted((mhz for mhz in clocks_mhz if mhz * config.max_instruction_slowdown >= max(clocks_mhz)), reverse=True)
    wanted = min(config.frequencies or len(fast), len(fast))
    if config.mode == "iteration":
        wanted = min(wanted, config.max_iterations)
    return tuple(fast[round(index)] for index in np.linspace(0, len(fast) - 1, wanted))
