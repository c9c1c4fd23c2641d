"""Smooth curves from noisy amounts, with intervals that tell the truth."""

import numpy as np
import pytest

from perseus_ds.profiling.regression import CONFIDENCE, parabolas, regress, unit_clocks

CLOCKS = unit_clocks([*range(855, 1411, 15)] * 2 + [855, 855])
CURVES = [np.arange(38), np.arange(38, 76)]


def true_powers(rng: np.random.Generator, free: float) -> np.ndarray:
    x = CLOCKS[:38]
    rise = 230 + 120 * x + 130 * x**2 + 8 * np.sin(7 * x)
    powers = np.concatenate([rise, 1.03 * rise + 10 * x, [84.0, 120.0]])
    return powers * (1 + free * rng.normal(size=78))


def measure(rng: np.random.Generator, powers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Every amount sees two states for a while, as an update of a counter does."""
    exposure = np.zeros((count, 78))
    for row in exposure:
        row[rng.integers(0, 77, 2)] += rng.uniform(0.02, 0.08, 2)
    return exposure, exposure @ powers * (1 + 0.03 * rng.normal(size=count))


def test_values_are_sharper_than_each_amount_and_intervals_cover() -> None:
    errors, covered = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = true_powers(rng, free=0.003)
        fit, _ = regress(*measure(rng, truth, 700), CURVES, CLOCKS)
        errors.append(fit.values[:77] / truth[:77] - 1)
        covered.append(np.abs(fit.values - truth)[:77] <= CONFIDENCE * fit.sd[:77])
        assert fit.noise == pytest.approx(0.03, rel=0.15)

    assert np.sqrt(np.mean(np.square(errors))) < 0.008
    assert 0.90 <= np.mean(covered) <= 1.0


def test_amounts_that_are_plainly_wrong_do_not_count() -> None:
    rng = np.random.default_rng(3)
    truth = true_powers(rng, free=0.0)
    exposure, energy = measure(rng, truth, 700)
    energy[::50] *= 4.0

    fit, _ = regress(exposure, energy, CURVES, CLOCKS)

    assert np.sqrt(np.mean((fit.values[:77] / truth[:77] - 1) ** 2)) < 0.015


def test_a_state_that_nothing_saw_has_a_wide_interval_and_its_neighbours_guess() -> None:
    rng = np.random.default_rng(4)
    truth = true_powers(rng, free=0.0)
    exposure, _ = measure(rng, truth, 700)
    exposure[:, 20] = 0.0
    energy = exposure @ truth * (1 + 0.03 * rng.normal(size=700))
    seen = energy > 0

    fit, _ = regress(exposure[seen], energy[seen], CURVES, CLOCKS)

    assert fit.values[20] == pytest.approx(truth[20], rel=0.03)
    assert fit.sd[20] > fit.sd[19]
    assert fit.sd[77] > 100, "nothing is known of a lone state that nothing saw"


def test_parabolas_have_one_constant_per_lone_state() -> None:
    assert parabolas(CURVES, CLOCKS).shape == (78, 8)
