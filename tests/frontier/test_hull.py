"""From measured points to what a planner may choose."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import curve

from perseus_ds.frontier.hull import lower_hull, pareto_options, thin_hull


def test_hull_drops_what_lies_above_its_chords() -> None:
    times, energies = np.array([1.0, 2, 3, 4]), np.array([10.0, 9.5, 6, 5])
    assert lower_hull(times, energies).tolist() == [0, 2, 3]


def test_pareto_options_keep_only_what_nothing_beats() -> None:
    options = pareto_options(curve((3, 1.0, 9.0), (2, 1.0, 8.0), (1, 1.5, 8.5), (4, 0.9, 10.0)), 0.0)
    assert options.frequency_mhz.tolist() == [4, 2]


def test_of_equal_points_the_highest_clock_is_kept() -> None:
    options = pareto_options(curve((2, 1.0, 8.0), (3, 1.0, 8.0)), 0.0)
    assert options.frequency_mhz.tolist() == [3]


def test_energies_are_effective_and_the_hull_belongs_to_the_options() -> None:
    options = pareto_options(curve((3, 1.0, 10.0), (2, 2.0, 11.0), (1, 4.0, 12.0)), 2.0)
    assert options.effective_j.tolist() == [8.0, 7.0, 4.0]
    assert options.hull.tolist() == [0, 2]  # 7 J at 2 s lies above the chord from 8 J to 4 J
    assert options.error_j == 0


def test_points_on_a_chord_need_not_be_on_the_hull() -> None:
    assert lower_hull(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])).tolist() == [0, 2]


@pytest.mark.parametrize("allowed_j", [0.0, 0.1, 0.25, 3.0])
def test_a_thinned_hull_is_as_far_off_as_it_says_and_no_farther_than_allowed(allowed_j: float) -> None:
    times = np.linspace(1.0, 3.0, 21)
    energies = 5.0 / times
    hull = lower_hull(times, energies)
    kept, error_j = thin_hull(times, energies, hull, allowed_j)
    off_j = np.interp(times, times[kept], energies[kept]) - energies
    assert error_j == pytest.approx(off_j.max())
    assert error_j <= allowed_j
    assert (kept[0], kept[-1]) == (0, 20)
    assert np.isin(kept, hull).all()
    # The farthest that is allowed is taken: one more point would be too far.
    for first, last in zip(kept[:-2], kept[1:-1] + 1, strict=True):
        inner = np.arange(first, last + 1)
        chord = np.interp(times[inner], times[[first, last]], energies[[first, last]])
        assert (chord - energies[inner]).max() > allowed_j


def test_the_tolerance_is_relative_to_the_least_measured_energy() -> None:
    points = curve(*((1400 - i, 1.0 + 0.1 * i, 50 / (1 + 0.1 * i)) for i in range(20)))
    least_j = min(point.energy_j for point in points)
    options = pareto_options(points, 10.0, tolerance=0.01)
    assert 0.005 * least_j < options.error_j <= 0.01 * least_j
    assert options.hull.size < options.time_s.size
