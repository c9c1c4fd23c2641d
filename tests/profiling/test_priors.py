"""How values over the clock go together before anything is measured."""

import numpy as np
import pytest

from perseus_ds.profiling.priors import (
    common_parabola,
    matern,
    parabolas,
    prior_covariance,
    unit_clocks,
    unknown_beforehand,
)


def test_values_go_together_by_clock_by_curve_and_by_nothing() -> None:
    clock = np.array([0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0])
    smooth, own, free = 0.1, 0.01, 0.001

    covariance = prior_covariance([np.arange(3), np.arange(3, 6)], clock, 0.5, smooth, own, free)

    # Matern 5/2 one correlation length away, and two.
    near, far = (1 + np.sqrt(5) + 5 / 3) * np.exp(-np.sqrt(5)), (1 + 2 * np.sqrt(5) + 20 / 3) * np.exp(-2 * np.sqrt(5))
    assert matern(np.array([0.0, 0.5, 1.0]), 0.5) == pytest.approx(
        np.array([[1, near, far], [near, 1, near], [far, near, 1]])
    )
    assert covariance[0, 3:6] == pytest.approx(smooth**2 * np.array([1.0, near, far])), "of another curve"
    assert covariance[1, 2] == pytest.approx(smooth**2 * near + own**2 * (near + 0.5 + 0.25)), "of the same curve"
    assert covariance[2, 2] == pytest.approx(smooth**2 + own**2 * 3 + free**2)
    assert covariance[6] == pytest.approx([0, 0, 0, 0, 0, 0, free**2]), "of a lone state"


def test_a_curve_of_its_own_may_bend_by_far_and_wave_little() -> None:
    clock = np.array([0.0, 0.5, 1.0])
    covariance = prior_covariance([np.arange(3)], clock, 0.2, 0.0, 0.2, 0.0, waves=0.01)
    bends = np.array([1.0, -2.0, 1.0])
    assert np.sqrt(bends @ covariance @ bends) == pytest.approx(0.2 / 2, rel=0.1), "a parabola's: half its square"
    assert np.sqrt(covariance[0, 0]) == pytest.approx(0.01), "where parabolas are nought"


def test_plateaus_are_nearly_flat_and_have_nothing_in_common_with_curves() -> None:
    clock = np.array([0.0, 0.5, 0.5, 1.0])
    curves, plateaus = [np.array([0, 1])], [np.array([2, 3])]
    covariance = prior_covariance(curves, clock, 0.5, 0.1, 0.01, 0.001, plateaus)
    assert covariance[:2, 2:] == pytest.approx(np.zeros((2, 2)))
    assert np.sqrt(covariance[2, 2]) == pytest.approx(0.05, rel=0.2)
    assert parabolas(curves, clock, plateaus)[:, 3:].tolist() == [[0], [0], [1], [1]]


def test_a_plateau_is_about_as_high_as_curves_are_where_it_begins() -> None:
    clock = np.array([0.0, 0.5, 0.5, 1.0])
    common = common_parabola([np.array([0, 1])], clock, [np.array([2, 3])])
    assert common[1:].tolist() == [common[1].tolist()] * 3
    unknown = unknown_beforehand([np.array([0, 1])], clock, [np.array([2, 3])])
    covariance = unknown @ unknown.T
    assert covariance[2, 2] == covariance[2, 3] == covariance[3, 3]
    assert np.sqrt(covariance[1, 1] + covariance[2, 2] - 2 * covariance[1, 2]) == pytest.approx(0.25 * np.sqrt(2))


def test_clocks_are_scaled_to_their_range() -> None:
    assert unit_clocks([900, 1410, 1155]).tolist() == [0.0, 1.0, 0.5]
    assert unit_clocks([1410, 1410]).tolist() == [0.0, 0.0]


def test_parabolas_have_one_constant_per_lone_state() -> None:
    clock = np.array([0.0, 0.5, 1.0, 0.5, 0.0])

    basis = parabolas([np.array([0, 1, 2]), np.array([3])], clock)

    assert basis[:, :3].tolist() == [[0, 0, 1], [0.25, 0.5, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert basis[3, 3:6].tolist() == [0.25, 0.5, 1]
    assert basis[:, 6].tolist() == [0, 0, 0, 0, 1]
