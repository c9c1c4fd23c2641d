"""Smooth curves from noisy amounts, with intervals that tell the truth."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from perseus_ds.profiling.priors import unit_clocks
from perseus_ds.profiling.regression import CONFIDENCE, Evidence, Expected, Posteriors, posteriors, refit, regress

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
        fit, evidence = regress(*measure(rng, truth, 700), CURVES, CLOCKS)
        assert evidence.count == 700, "noise as it should be makes no outlier"
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


def test_curves_are_alike_where_the_amounts_hardly_tell_them_apart() -> None:
    """Every amount sees two kinds at one clock for much the same share of its time; both are of one shape."""
    clock = unit_clocks([*range(855, 1411, 15)] * 2)
    power = 230 + 120 * clock[:38] + 130 * clock[:38] ** 2
    truth = np.concatenate([power, 1.03 * power])
    tilts = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        share, at = rng.normal(0.35, 0.02, 600), rng.integers(0, 38, 600)
        exposure, rows = np.zeros((600, 76)), np.arange(600)
        exposure[rows, at], exposure[rows, at + 38] = share, 1.0 - share

        fit, _ = regress(exposure, exposure @ truth * rng.normal(1.0, 0.01, 600), CURVES, clock)

        ratio = fit.values[38:] / fit.values[:38]
        tilts.append(ratio[-10:].mean() - ratio[:10].mean())
    assert np.sqrt(np.mean(np.square(tilts))) < 0.03


def test_a_plateau_that_nothing_saw_is_about_as_high_as_the_curves_are_there() -> None:
    rng = np.random.default_rng(5)
    truth = true_powers(rng, free=0.0)
    exposure, _ = measure(rng, truth, 700)
    exposure[:, 74:76] = 0.0
    exposure = exposure[exposure.any(axis=1)]
    energy = exposure @ truth * (1 + 0.03 * rng.normal(size=len(exposure)))

    fit, _ = regress(exposure, energy, [CURVES[0], np.arange(38, 74)], CLOCKS, plateaus=[np.array([74, 75])])

    assert fit.values[74:76] == pytest.approx(truth[74:76], rel=0.15)
    assert (fit.sd[74:76] > 0.1 * truth[74:76]).all()


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


def test_without_noise_the_values_come_out_as_they_are_and_the_evidence_is_the_normal_equations() -> None:
    rng = np.random.default_rng(5)
    truth = true_powers(rng, free=0.0)
    truth[38:76] = 1.03 * truth[:38]
    truth[77] = 2.0  # far below what all draw on average
    exposure, _ = measure(rng, truth, 700)
    exposure[:, 77] += 0.01
    amounts = exposure @ truth

    fit, evidence = regress(exposure, amounts, CURVES, CLOCKS)

    seen = exposure.any(axis=0)
    assert fit.values[seen] == pytest.approx(truth[seen], rel=2e-3, abs=0.05)
    assert fit.noise < 0.01, "what is beyond a parabola is hardly taken for noise"
    assert evidence.count == 700
    assert evidence.square == pytest.approx(700, rel=1e-3)
    shares = exposure / amounts[:, None]
    assert evidence.gram == pytest.approx(shares.T @ shares, rel=0.02, abs=1e-9)
    assert evidence.moment == pytest.approx(shares.sum(axis=0), rel=0.02)
    parabola = np.polyval(np.polyfit(CLOCKS[:38], truth[:38], 2), CLOCKS[:38])
    assert evidence.scale[:38] == pytest.approx(parabola, rel=0.02)
    assert evidence.scale[:76].mean() == pytest.approx(truth[:76].mean(), rel=0.01)
    assert evidence.scale[38:76] / evidence.scale[:38] == pytest.approx(np.full(38, 1.03), rel=0.01), "of one shape"
    assert evidence.scale[77] == pytest.approx(amounts.sum() / exposure.sum() / 4), "no scale is next to nothing"


def test_the_noise_is_found_from_few_amounts_too() -> None:
    clock, curves = unit_clocks([900, 1100, 1300, 1410, 900]), [np.arange(4)]
    powers = np.array([230.0, 260.0, 310.0, 350.0, 84.0])
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        exposure = rng.uniform(0.01, 0.08, (9, 5))
        amounts = exposure @ powers * (1 + 0.03 * rng.normal(size=9))
        found.append(regress(exposure, amounts, curves, clock)[1].noise)

    # Four of nine degrees of freedom go into the parabola and the constant.
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.03, rel=0.2)


def small_evidence() -> tuple[Evidence, np.ndarray, np.ndarray]:
    """Twelve amounts of two curves of two states and a lone one; with the design and the target."""
    rng = np.random.default_rng(6)
    design = rng.uniform(0.0, 1.0, (12, 5))
    target = design @ np.array([1.0, 2.0, 1.5, 2.5, 0.5]) + 0.1 * rng.normal(size=12)
    evidence = Evidence(
        gram=design.T @ design,
        moment=design.T @ target,
        square=float(target @ target),
        count=12,
        curves=[np.array([0, 1]), np.array([2, 3])],
        clock=np.array([0.0, 1.0, 0.0, 1.0, 0.0]),
        scale=np.ones(5),
        noise=0.1,
    )
    return evidence, design, target


def test_posteriors_are_those_of_the_textbook() -> None:
    evidence, design, target = small_evidence()
    covariances = [np.diag([1.0, 4.0, 0.25, 1.0, 9.0]), np.eye(5) + 0.5]

    found = posteriors(evidence, covariances)

    assert found.noises == pytest.approx([0.06, 0.075, 0.09, 0.1, 0.115, 0.14])
    for covariance, means, variances, scores in zip(
        covariances, found.means, found.variances, found.scores, strict=True
    ):
        for noise, mean, variance, score in zip(found.noises, means, variances, scores, strict=True):
            expected = np.linalg.inv(np.linalg.inv(covariance) + design.T @ design / noise**2)
            assert mean == pytest.approx(expected @ design.T @ target / noise**2)
            assert variance == pytest.approx(np.diag(expected))
            amounts = multivariate_normal(np.zeros(12), design @ covariance @ design.T + noise**2 * np.eye(12))
            assert score - 6 * np.log(2 * np.pi) == pytest.approx(amounts.logpdf(target))


def test_the_evidence_of_larger_amounts_has_larger_values() -> None:
    evidence, _, _ = small_evidence()

    larger = refit(evidence.scaled(3.0))

    assert larger.values == pytest.approx(3.0 * refit(evidence).values)
    assert larger.sd == pytest.approx(3.0 * refit(evidence).sd)
    assert larger.noise == pytest.approx(refit(evidence).noise)


def test_what_is_beyond_some_values_is_the_evidence_of_the_rest() -> None:
    evidence, design, target = small_evidence()
    values = np.array([1.0, 1.0, 2.0, 2.0, 3.0])

    beyond = evidence.beyond(values)

    rest = target - design @ values
    assert beyond.moment == pytest.approx(design.T @ rest)
    assert beyond.square == pytest.approx(rest @ rest)
    assert (beyond.gram is evidence.gram, beyond.count) == (True, 12)


def test_an_average_is_a_mixture_with_the_spread_between_its_parts() -> None:
    two = Posteriors(
        means=np.array([[[1.0]], [[3.0]]]),
        variances=np.array([[[4.0]], [[0.0]]]),
        scores=np.zeros((2, 1)),
        noises=np.array([0.02]),
    )

    # Weights 1/4 and 3/4; only differences of scores count.
    fit = two.average(np.array([[5000.0], [5000.0 + np.log(3.0)]]))

    assert fit.values == pytest.approx([2.5])
    assert fit.sd**2 == pytest.approx([0.25 * (4.0 + 1.5**2) + 0.75 * 0.5**2])
    assert fit.noise == pytest.approx(0.02)


def test_what_is_known_beforehand_counts_where_the_amounts_do_not_tell() -> None:
    exposure = np.eye(4)[[0, 1, 2] * 10] * 0.05
    amounts = exposure @ np.array([200.0, 300.0, 400.0, 0.0]) * (1 + 0.01 * np.random.default_rng(1).normal(size=30))
    known = Expected({3: 1.0}, share=0.25, sd=0.1)

    fit, evidence = regress(exposure, amounts, [np.arange(3)], np.array([0.0, 0.5, 1.0, 0.0]), [known])

    assert fit.values[:3] == pytest.approx([200.0, 300.0, 400.0], rel=0.02)
    assert fit.values[3] == pytest.approx(100.0, rel=0.05), "nothing saw it"
    assert fit.sd[3] == pytest.approx(40.0, rel=0.2)
    assert evidence.count == 31


def test_what_is_known_of_a_difference_tells_one_of_the_other() -> None:
    exposure = np.eye(4)[[0, 1, 2] * 10] * 0.05
    amounts = exposure @ np.array([200.0, 300.0, 400.0, 0.0]) * (1 + 0.01 * np.random.default_rng(1).normal(size=30))
    alike = Expected({1: -1.0, 3: 1.0}, share=0.0, sd=0.01)

    fit, _ = regress(exposure, amounts, [np.arange(3)], np.array([0.0, 0.5, 1.0, 0.0]), [alike])

    assert fit.values[3] == pytest.approx(fit.values[1], rel=1e-3)
    assert fit.sd[3] == pytest.approx(np.hypot(4.0, fit.sd[1]), rel=0.2)
