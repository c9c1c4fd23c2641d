"""The virtual GPU's loads."""

import pytest

from perseus_ds.silicon.lab import Load
from perseus_ds.silicon.virtual_loads import CLOCKS_MHZ, UNITS_S, load_curves


def test_each_load_has_curves_of_every_length_and_its_power():
    curves = load_curves()
    assert len({key for key, _ in curves.values()}) == len(curves) == 7 * len(UNITS_S)
    (_, matrix), (_, memory) = curves[Load.MATRIX, 1, 0.1], curves[Load.MEMORY, 1, 0.1]
    assert [point.frequency_mhz for point in matrix] == list(CLOCKS_MHZ)
    assert matrix[0].energy_j / matrix[0].time_s > 1000.0, "more than the power limit"
    assert matrix[-1].time_s == pytest.approx(0.1 * CLOCKS_MHZ[0] / CLOCKS_MHZ[-1])
    assert memory[60].time_s < 1.2 * memory[0].time_s
