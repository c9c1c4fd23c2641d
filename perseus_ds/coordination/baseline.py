"""Which iterations at the default clocks are the baseline: half before the sweep, half after it.

The first half tells the sweep what an iteration is. Plans are compared with the second: by then the GPUs are as warm
as under a plan. A cold GPU leaks less, and holds higher clocks at its power limit.
"""

from __future__ import annotations

__all__ = ["after_sweep", "before_sweep"]


def before_sweep(begin: int, count: int, profiled: bool) -> range:
    """Return the iterations before the sweep.

    Args:
        begin: The first one after the warm-up.
        count: ``baseline_iterations``.
        profiled: Whether no sweep follows.
    """
    return range(begin, begin + (count if profiled else max(1, count - count // 2)))


def after_sweep(begin: int, count: int) -> range:
    """Return the iterations after the sweep.

    Args:
        begin: The first one at the default clocks, in which the clocks settle.
        count: ``baseline_iterations``.
    """
    return range(begin + 1, begin + 1 + max(1, count // 2))
