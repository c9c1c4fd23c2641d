"""The energy of a typical iteration, from a counter that sees a part of the power."""

from statistics import fmean, median

import numpy as np
import pytest

from perseus_ds.report.typical import typical_energies_j


def test_iterations_that_were_held_up_do_not_count() -> None:
    rows = [
        (1.0, 100.0),
        (1.02, 104.0),
        (0.99, 96.0),
        (3.0, 105.0),
        (1.0, 150.0),
        (None, 90.0),
        (1.0, None),
        (1.0, float("nan")),
    ]

    assert typical_energies_j(rows) == [100.0, 104.0, 96.0]
    assert typical_energies_j([(None, 1.0)]) == []


def test_what_a_sampling_counter_gives_one_iteration_it_takes_from_another() -> None:
    # Half of each iteration draws 275 W, half 225 W; the counter looks at the power once in 0.09 s.
    looks_s = np.arange(0.05, 60.0, 0.09)
    counter_j = np.cumsum(np.where(looks_s % 1.0 < 0.5, 275.0, 225.0)) * 0.09
    energies = np.diff(np.interp(np.arange(1.0, 20.0), looks_s, counter_j))

    assert median(energies) == pytest.approx(248.0)
    assert fmean(typical_energies_j((1.0, energy_j) for energy_j in energies)) == pytest.approx(250.0, rel=1e-3)
