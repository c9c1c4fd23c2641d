"""Smooth curves over the clock, regressed from noisy amounts: energy increments or durations.

Each kind and clock has only a few instances, often shorter than one update of the energy counter. No point can be
measured alone. But power and time change smoothly with the clock, and similarly for all kinds. A Gaussian process
over the clock uses all amounts for all points: a common parabola, a smooth deviation, smaller ones per kind, and a
small free one per point. The evidence of the data weighs the size of each part and of the noise, and sets the
intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.priors import (
    VAGUE,
    Curves,
    common_parabola,
    parabolas,
    prior_covariance,
    unknown_beforehand,
)

__all__ = [
    "CONFIDENCE",
    "CurveFit",
    "Evidence",
    "Expected",
    "Posteriors",
    "posteriors",
    "refit",
    "regress",
]

Array = NDArray[np.float64]

# Correlation length as a share of the clock's range; standard deviations, as shares of the value, of the common
# deviation from the parabola, of each kind's own, and of each point's own.
_PRIORS = tuple(product((0.2, 0.6), (0.01, 0.05), (0.005, 0.03, 0.2), (0.003, 0.006)))
_ROUGHLY = ((0.3, 0.03, 0.03, 0.004),)
_NOISES = np.array([0.6, 0.75, 0.9, 1.0, 1.15, 1.4])
_SPREAD = 4.0
CONFIDENCE = 1.96
_OUTLIER = 5.0
_NEVER_OUTLIER = 0.01
_HELD = 0.03
_HARDLY_SEEN = 1e-9
_LEAST_NOISE = 1e-6  # below it, rounding errors count for more than what is known beforehand


@dataclass(frozen=True)
class Evidence:
    """Normal equations: the information of all amounts about the values, in units of the amounts' noise.

    Attributes:
        gram: Shape (p, p).
        moment: Shape (p,).
        square: Squared length of the target.
        count: Number of amounts.
        curves: The columns of each curve's states; a state in no curve stands alone.
        clock: Each state's clock, scaled to about 0 … 1, shape (p,).
        scale: Rough value of each state, shape (p,).
        noise: Rough relative noise of an amount.
        plateaus: The columns of each curve that is nearly flat.
    """

    gram: Array
    moment: Array
    square: float
    count: int
    curves: Curves
    clock: Array
    scale: Array
    noise: float
    plateaus: Curves = ()

    def beyond(self, values: Array) -> Evidence:
        """Return the moment of the deviation from ``values``, shape (p,)."""
        explained = self.gram @ values
        square = self.square + float(values @ (explained - 2 * self.moment))
        return replace(self, moment=self.moment - explained, square=square)

    def scaled(self, factor: float) -> Evidence:
        """Return the evidence of amounts that are larger by a factor."""
        return replace(self, gram=self.gram / factor**2, moment=self.moment / factor, scale=self.scale * factor)

    def level(self, values: Array) -> float:
        """Return by what all ``values``, shape (p,), are to be multiplied to explain the amounts best."""
        return float(self.moment @ values) / float(values @ self.gram @ values)

    def of_first(self, count: int) -> Evidence:
        """Return what the amounts say of the first values whatever the others are; curves unchanged."""
        across, others = self.gram[:count, count:], self.gram[count:, count:]
        explained = across @ np.linalg.pinv(others, rcond=1e-9, hermitian=True)
        known = np.linalg.lstsq(others, self.moment[count:], rcond=1e-9)[0]
        return replace(
            self,
            gram=self.gram[:count, :count] - explained @ across.T,
            moment=self.moment[:count] - explained @ self.moment[count:],
            square=self.square - float(known @ self.moment[count:]),
            clock=self.clock[:count],
            scale=self.scale[:count],
        )


class Expected(NamedTuple):
    """What is known beforehand of a state, or of a sum of some.

    Attributes:
        weights: Of each state's value in the sum, by its column.
        share: The sum, as a share of the largest value of the curves.
        sd: Standard deviation of that share.
    """

    weights: Mapping[int, float]
    share: float
    sd: float


@dataclass(frozen=True)
class CurveFit:
    """Values of all states: powers, or durations.

    Attributes:
        values: Shape (p,).
        sd: Standard deviation of ``values``, shape (p,).
        noise: Relative noise of an amount.
        log_evidence: Of the priors together, up to a constant, by amount: a larger one explains the amounts better.
    """

    values: Array
    sd: Array
    noise: float
    log_evidence: float = -np.inf


@dataclass(frozen=True)
class Posteriors:
    """Values under each of q priors and n sizes of the amounts' noise.

    Attributes:
        means: Shape (q, n, p).
        variances: Shape (q, n, p).
        scores: Logarithm of the evidence for each, up to a constant, shape (q, n).
        noises: Relative noise of an amount, shape (n,).
    """

    means: Array
    variances: Array
    scores: Array
    noises: Array

    def average(self, scores: Array) -> CurveFit:
        """Return the average weighted by the exponential of ``scores``, shape (q, n)."""
        weights = np.exp(scores - np.max(scores))
        weights /= weights.sum()
        mean = np.einsum("qn,qnp->p", weights, self.means)
        variance = np.einsum("qn,qnp->p", weights, self.variances + (self.means - mean) ** 2)
        return CurveFit(mean, np.sqrt(variance), float(weights.sum(axis=0) @ self.noises))


def regress(
    exposure: Array,
    amounts: Array,
    curves: Curves,
    clock: Array,
    known: Sequence[Expected] = (),
    plateaus: Curves = (),
) -> tuple[CurveFit, Evidence]:
    """Regress amounts on exposures.

    Args:
        exposure: Share of each state in each amount (seconds for energies, ones for durations), shape (n, p).
        amounts: The measured amounts, shape (n,); their noise is proportional to their size.
        curves: The columns of each curve's states; a state in no curve stands alone.
        clock: Each state's clock, scaled to about 0 … 1, shape (p,).
        known: What is known beforehand.
        plateaus: The columns of each curve that is nearly flat.

    Returns:
        Each state's value, and the evidence behind it. States without exposure get a wide interval.
    """
    expected, kept = amounts, np.ones(len(amounts), dtype=bool)
    for _ in range(3):
        fit = refit(_evidence(exposure[kept], amounts[kept], expected[kept], curves, clock, plateaus), _ROUGHLY)
        # The noise goes with the true amount: weighing by the measured one favours those drawn low.
        expected = np.maximum(exposure @ fit.values, 0.1 * amounts)
        away = np.abs(amounts / expected - 1.0)
        kept = away <= max(_OUTLIER * 1.4826 * float(np.median(away)), _NEVER_OUTLIER)
    evidence = _evidence(exposure[kept], amounts[kept], expected[kept], curves, clock, plateaus)
    for one in known:
        evidence = _with_known(evidence, one)
    return refit(evidence), evidence


def _with_known(evidence: Evidence, known: Expected) -> Evidence:
    """Add what is known beforehand, as one more amount."""
    largest = float(evidence.scale[np.concatenate(evidence.curves)].max())
    weight = evidence.noise / (known.sd * largest)
    row = np.zeros(len(evidence.scale))
    row[list(known.weights)] = [weight * one for one in known.weights.values()]
    target = weight * known.share * largest
    return replace(
        evidence,
        gram=evidence.gram + np.outer(row, row),
        moment=evidence.moment + row * target,
        square=evidence.square + target**2,
        count=evidence.count + 1,
    )


def _evidence(
    exposure: Array, amounts: Array, expected: Array, curves: Curves, clock: Array, plateaus: Curves
) -> Evidence:
    """Weight each amount by its expected value, and sum up."""
    design, target = exposure / expected[:, None], amounts / expected
    basis = parabolas(curves, clock, plateaus)
    coarse = design @ basis
    solution, _, rank, _ = np.linalg.lstsq(coarse, target, rcond=1e-9)
    mean = float(amounts.sum() / exposure.sum())
    rest = target - coarse @ solution
    return Evidence(
        gram=design.T @ design,
        moment=design.T @ target,
        square=float(target @ target),
        count=len(target),
        curves=curves,
        clock=clock,
        scale=np.clip(_roughly(design * mean, target, curves, clock, plateaus), 1 / _SPREAD, _SPREAD) * mean,
        noise=float(np.sqrt(rest @ rest / max(len(target) - rank, 1))) + _LEAST_NOISE,
        plateaus=plateaus,
    )


def _roughly(design: Array, target: Array, curves: Curves, clock: Array, plateaus: Curves) -> Array:
    """Return values that explain the target, shape (p,), all curves of one shape.

    What else the amounts tell of a curve's shape they would otherwise tell twice: here, and beside what is known of it.
    """
    common = common_parabola(curves, clock, plateaus)
    beforehand = unknown_beforehand(curves, clock, plateaus)
    rows = np.vstack([design @ beforehand, _HELD * np.eye(beforehand.shape[1])])
    found = np.linalg.lstsq(rows, np.append(target, np.zeros(beforehand.shape[1])), rcond=None)[0]
    values = beforehand @ found
    levels = len(curves) + len(plateaus)
    shape = common @ found[levels : levels + common.shape[1]] * VAGUE
    seen = design.sum(axis=0) + _HARDLY_SEEN  # clocks that nothing saw are extrapolated
    for states in (*curves, *plateaus):
        values[states] = shape[states] * (seen[states] @ values[states]) / (seen[states] @ shape[states])
    return values


def refit(evidence: Evidence, priors: Sequence[tuple[float, ...]] = _PRIORS, waves: float = inf) -> CurveFit:
    """Average the posterior over priors, weighted by the evidence for each.

    Args:
        evidence: Information of the amounts.
        priors: Correlation length and the three standard deviations of each.
        waves: How far a kind's own curve may leave its parabola, at most, as a standard deviation.
    """
    curves, clock, plateaus = evidence.curves, evidence.clock, evidence.plateaus
    unknown = unknown_beforehand(curves, clock, plateaus)
    vague = unknown @ unknown.T
    sizes = np.outer(evidence.scale, evidence.scale)
    known = (prior_covariance(curves, clock, *prior, plateaus=plateaus, waves=waves) for prior in priors)
    found = posteriors(evidence, (sizes * (one + vague) for one in known))
    together = float(np.logaddexp.reduce(found.scores, axis=None))
    return replace(found.average(found.scores), log_evidence=together / max(evidence.count, 1))


def posteriors(evidence: Evidence, covariances: Iterable[Array]) -> Posteriors:
    """Return the posterior under each of several priors.

    Args:
        evidence: Information of the amounts.
        covariances: Prior covariances of the values, each positive definite with shape (p, p); the prior mean is 0.
    """
    sigma2 = (evidence.noise * _NOISES[:, None]) ** 2
    means, variances, scores = [], [], []
    for covariance in covariances:
        root = np.linalg.cholesky(covariance)
        strengths, vectors = np.linalg.eigh(root.T @ evidence.gram @ root)
        strengths = np.maximum(strengths, 0.0)
        spread = root @ vectors
        projected = spread.T @ evidence.moment
        shrunk = 1.0 / (strengths + sigma2)
        misfit = (evidence.square - shrunk @ projected**2) / sigma2[:, 0]
        log_det = np.log1p(strengths / sigma2).sum(axis=1) + evidence.count * np.log(sigma2[:, 0])
        scores.append(-0.5 * (misfit + log_det))
        means.append((shrunk * projected) @ spread.T)
        variances.append((sigma2 * shrunk) @ (spread**2).T)
    return Posteriors(np.array(means), np.array(variances), np.array(scores), evidence.noise * _NOISES)
