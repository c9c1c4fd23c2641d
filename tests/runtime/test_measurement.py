"""What a rank has measured: energies between the points of the counter."""

import math

import pytest

from perseus_ds.runtime.measurement import Measurements

WATTS = 400.0


@pytest.mark.parametrize("period_s", [0.01, 0.1])
def test_the_energy_of_an_iteration_of_minutes_is_whole(period_s):
    measurements = Measurements()
    for iteration in range(3):
        measurements.lasted(iteration, 100.0 * iteration, 100.0 * (iteration + 1))
    measurements.samples = [(period_s * n, WATTS * period_s * n) for n in range(1, round(250.0 / period_s))]
    assert measurements.energy_j(1) == pytest.approx(100.0 * WATTS)
    assert math.isnan(measurements.energy_j(0)), "the counter was not read at its begin"
    assert math.isnan(measurements.energy_j(2)), "the counter is behind"
