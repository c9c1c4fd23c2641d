"""Whether a counter's increments are explained: what a wrong window leaves behind shows in the residuals.

A window of the wrong place or shape leaves residuals that follow the power just before or after. One that differs
from update to update leaves residuals that are larger where the power changes. Noise does neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BELIEVED", "Verdict", "judge"]

Array = NDArray[np.float64]

_SHIFTS = (-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0, 8.0)
_OUTLIER = 5.0
_NEVER_OUTSIDE = 0.01
_CERTAINLY = 6.0
_MATTERS = 0.004
_TOO_MANY = 0.04
_LEAST = 40  # increments


@dataclass(frozen=True)
class Verdict:
    """What the residuals say.

    Attributes:
        followed: How far the residuals follow the power before and after, in standard deviations of chance.
        uneven: How far they are larger where the power changes, likewise.
        structured: The part of an increment that follows, root mean square.
        outside: Share of the increments that are far from what was expected, of those that saw no power limit hold.
    """

    followed: float
    uneven: float
    structured: float
    outside: float = 0.0

    @property
    def explained(self) -> bool:
        """Whether the fit may be believed. Noise alone fails once in some 10,000 times."""
        follows = self.followed > _CERTAINLY and self.structured > _MATTERS
        return not follows and self.outside < _TOO_MANY


BELIEVED = Verdict(0.0, 0.0, 0.0)
"""Nothing is said against it."""


def judge(expected_j: Array, measured_j: Array, moved_j: Callable[[float], Array], free: NDArray[np.bool_]) -> Verdict:
    """Judge the residuals of a fit.

    Args:
        expected_j: Increments as fitted, shape (n,).
        measured_j: Increments as measured, shape (n,).
        moved_j: Returns what the fit expects of a window that lies so many periods earlier, shape (n,).
        free: Which increments saw no power limit hold, shape (n,). What a GPU draws until the limit notices is known
            roughly only; where few are free, all count.
    """
    residual = measured_j / expected_j - 1.0
    spread = 1.4826 * float(np.median(np.abs(residual)))
    kept = np.abs(residual) <= max(_OUTLIER * spread, _NEVER_OUTSIDE)
    outside = 1.0 - float(np.mean(kept[free] if np.count_nonzero(free) >= _LEAST else kept))
    residual = residual[kept] - residual[kept].mean()
    noise2 = float(residual @ residual) / len(residual)

    def around(shift: float) -> Array:
        return (moved_j(shift) / expected_j - 1.0)[kept]

    near = np.column_stack([around(shift) for shift in _SHIFTS])
    near -= near.mean(axis=0)
    solution = np.linalg.lstsq(near, residual, rcond=1e-6)[0]
    structured2 = float(np.mean((near @ solution) ** 2))
    count = len(_SHIFTS)
    followed = (len(residual) * structured2 / noise2 - count) / np.sqrt(2.0 * count)
    change2 = (around(0.5) - around(-0.5)) ** 2
    change2 -= change2.mean()
    squares = residual**2 / noise2 - 1.0
    uneven = float(squares @ change2) / np.sqrt(float(np.mean(squares**2)) * float(change2 @ change2) + 1e-30)
    return Verdict(float(followed), float(uneven), float(np.sqrt(structured2)), outside)
