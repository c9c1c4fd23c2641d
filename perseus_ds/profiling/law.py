"""Powers where the counter does not tell: the published power law, scaled to the energy that the GPU drew.

The sum over a whole run is right, whatever the counter averages. How it divides among the clocks comes from
measurements of others: power goes with the 1.5th power of the clock, as in the published A100 profile of GPT-3. A GPU
that waits draws a quarter of its power at the highest clock; one that reduces gradients or updates weights moves
memory, and draws more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.regression import CurveFit
from perseus_ds.profiling.table import CurveKey

__all__ = ["EXPONENT", "OTHER", "WAITING", "power_law"]

EXPONENT = 1.5
"""Power goes with this power of the clock."""

WAITING = (0.25, 0.12)
"""Power while waiting as a share of the others at the highest clock, and the standard deviation of this share."""

OTHER = (0.6, 0.3)
"""The same of other work: iterations in step with a counter may never let it see any."""

_DOUBT = 0.15
"""Standard deviation of each power, as a share of it."""


def power_law(states: Sequence[tuple[CurveKey, int]], exposed_s: NDArray[np.float64], energy_j: float) -> CurveFit:
    """Return powers that follow the law.

    Args:
        states: Curve and MHz of the first columns; after these come waiting, its slope and other work.
        exposed_s: How long the counter saw each column, shape (columns,).
        energy_j: What it counted in that time.
    """
    clocks_mhz = np.array([mhz for _, mhz in states], dtype=np.float64)
    shares = np.zeros(len(exposed_s))
    shares[: len(states)] = (clocks_mhz / clocks_mhz.max()) ** EXPONENT
    waiting, other = len(states), len(states) + 2
    shares[[waiting, other]] = WAITING[0], OTHER[0]
    values = shares * energy_j / float(shares @ exposed_s)
    return CurveFit(values, _DOUBT * values, _DOUBT)
