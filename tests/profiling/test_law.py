"""The published power law, scaled to what the counter counted."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.law import power_law
from perseus_ds.profiling.table import CurveKey

STATES = [(CurveKey(0, kind), mhz) for kind in (Kind.BACKWARD, Kind.FORWARD) for mhz in (705, 1410)]


def test_the_sum_is_what_was_counted_and_the_shape_is_the_law_s() -> None:
    exposed_s = np.array([2.0, 3.0, 1.0, 1.5, 4.0, 0.0, 0.5])

    fit = power_law(STATES, exposed_s, 2500.0)

    assert float(fit.values @ exposed_s) == pytest.approx(2500.0)
    assert fit.values[0] / fit.values[1] == pytest.approx(0.5**1.5)
    assert fit.values[4] == pytest.approx(0.25 * fit.values[1]), "waiting"
    assert fit.values[5] == 0.0, "its slope"
    assert np.all(fit.sd[:5] > 0.1 * fit.values[:5]), "marked as a guess by its interval"
