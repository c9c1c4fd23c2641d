"""Improves the energies of GPUs of one model with each other's data, where they run equal layers.

Their power curves share one shape and nearly one level. A joint fit to all increments shows details below the noise
of a single GPU. A second fit then gives each GPU its deviation from the common curve; all increments together
determine how large deviations are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.priors import matern, unit_clocks
from perseus_ds.profiling.regression import CurveFit, Evidence, posteriors, refit

__all__ = ["borrow", "deviation_covariance", "pool"]

Array = NDArray[np.float64]
Columns = Sequence[NDArray[np.intp]]
_Shared = tuple[Kind, bool, int]
"""What a state of one GPU is to all: kind, whether the power limit decides, clock."""

# Standard deviations from the common curves: of a GPU's level and of each of its curves' (in pairs), of each curve's
# smooth deviation, and of each point's own.
_LEVELS = ((0.003, 0.002), (0.02, 0.006), (0.2, 0.1))
_DEVIATIONS = tuple(product(_LEVELS, (0.001, 0.005, 0.03), (0.0005, 0.002, 0.006)))
# Likewise of a curve's level at the power limit: what ran before decides what the limit lets an instruction draw.
_HELD = 0.05
# How far a kind's curve leaves a parabola where the others do not: forwards and backwards by 0.4 % on the shipped A100
# profile, by 1.1 % on an A40. With the noise of one GPU gone, wrong times of what ran would look like more.
_WAVES = 0.01
_CURVES_DIFFER = 0.1
_CERTAIN = 0.02
_LENGTH = 0.4
_VAGUE = 10.0
_BORROWED = 0.03  # standard deviation of a power that was measured on other GPUs, as a share of it


def pool(attributions: Sequence[Attribution]) -> list[Attribution]:
    """Improve every GPU's energies with the data of the others.

    Args:
        attributions: Of GPUs of one model.

    Returns:
        The attributions in the same order, with new energies and intervals.
    """
    if len(attributions) < 2:
        return list(attributions)
    shared = [_shared(one) for one in attributions]
    common = sorted({state for states in shared for state in states})
    column = {state: index for index, state in enumerate(common)}
    where = [np.array([column[state] for state in states]) for states in shared]
    fit = refit(_together(attributions, common, where), waves=_WAVES)
    expected = [_with_lone(fit.values[columns], one) for one, columns in zip(attributions, where, strict=True)]
    found = [
        posteriors(one.evidence.beyond(values), _deviations(one.evidence, values))
        for one, values in zip(attributions, expected, strict=True)
    ]
    own = [np.logaddexp.reduce(each.scores, axis=1) for each in found]
    together = np.sum(own, axis=0)
    pooled = []
    for one, columns, values, each, score in zip(attributions, where, expected, found, own, strict=True):
        deviation = each.average(each.scores + (together - score)[:, None])
        sd = np.hypot(deviation.sd, _with_lone(fit.sd[columns], one))
        pooled.append(one.with_power(CurveFit(values + deviation.values, sd, deviation.noise)))
    return pooled


def _shared(one: Attribution) -> list[_Shared]:
    """Return what each state of a GPU is to all: what the power limit decides has a power of its own."""
    limited = {int(state) for members in one.evidence.plateaus for state in members}
    return [(key.kind, index in limited, mhz) for index, (key, mhz) in enumerate(one.states)]


def borrow(one: Attribution, known: Sequence[Attribution]) -> Attribution | None:
    """Give a GPU whose counter does not tell its powers those of GPUs whose counters do.

    The sum of what its own counter has counted tells the level.

    Args:
        one: Of the GPU.
        known: Of the others.

    Returns:
        The attribution with their powers; None where they have not run all of its kinds. A clock that they have not
        run has the power between those next to it.
    """
    drawn_w: dict[_Shared, list[float]] = defaultdict(list)
    for other in known:
        for state, power_w in zip(_shared(other), other.power.values, strict=False):
            drawn_w[state].append(float(power_w))
    wanted = _shared(one)
    if not {state[:2] for state in wanted} <= {state[:2] for state in drawn_w}:
        return None
    clocks_mhz = [mhz for _, mhz in one.states]
    slope_w = fmean(other.waiting_slope_w_per_mhz for other in known)
    waiting_w = fmean(
        other.blocking_power_w + other.waiting_slope_w_per_mhz * (one.waiting_mhz - other.waiting_mhz)
        for other in known
    )
    other_w = fmean(float(other.power.values[len(other.states) + 2]) for other in known)
    curves: dict[tuple[Kind, bool], list[tuple[int, float]]] = defaultdict(list)
    for (kind, limited, mhz), some_w in sorted(drawn_w.items()):
        curves[kind, limited].append((mhz, fmean(some_w)))
    drawn = {curve: np.array(points, dtype=float).T for curve, points in curves.items()}
    powers_w = [float(np.interp(mhz, *drawn[kind, limited])) for kind, limited, mhz in wanted]
    values = np.zeros(len(one.evidence.gram))
    values[: len(powers_w) + 3] = *powers_w, waiting_w, slope_w * (max(clocks_mhz) - min(clocks_mhz)), other_w
    values *= one.evidence.level(values)
    return one.with_power(CurveFit(values, _BORROWED * np.abs(values), one.power.noise))


def _with_lone(values: Array, one: Attribution) -> Array:
    """Append zeros for the states that GPUs do not share: waiting and other work."""
    return np.append(values, np.zeros(len(one.power.values) - len(values)))


def _deviations(evidence: Evidence, expected: Array) -> Iterator[Array]:
    """Yield the covariance of the deviation from the expected values, shape (p, p), for each of its sizes."""
    lone = np.diag(np.where(expected == 0.0, _VAGUE * evidence.scale, 0.0) ** 2)
    sizes = np.outer(expected, expected)
    held = np.zeros_like(sizes)
    for states in evidence.plateaus:
        held[np.ix_(states, states)] = _HELD**2
    for (gpu, level), smooth, free in _DEVIATIONS:
        curves = [*evidence.curves, *evidence.plateaus]
        yield sizes * (held + deviation_covariance(curves, evidence.clock, gpu, level, smooth, free)) + lone


def deviation_covariance(curves: Columns, clock: Array, gpu: float, level: float, smooth: float, free: float) -> Array:
    """Return how a GPU's deviations from the common curves go together, as shares of the values.

    Args:
        curves: For each curve, the columns of its states.
        clock: Each state's clock, scaled to about 0 … 1, shape (p,).
        gpu: Standard deviation of the GPU's level, in all its curves.
        level: Of each curve's own level.
        smooth: Of each curve's smooth deviation.
        free: Of each point's own.

    Returns:
        The covariance, shape (p, p).
    """
    same_curve = np.zeros((len(clock), len(clock)))
    for members in curves:
        same_curve[np.ix_(members, members)] = 1.0
    alike = same_curve * matern(clock, _LENGTH)
    return gpu**2 + level**2 * same_curve + smooth**2 * alike + free**2 * np.eye(len(clock))


def _together(attributions: Sequence[Attribution], common: Sequence[_Shared], where: Columns) -> Evidence:
    """Sum the evidence of all GPUs for their common curves, each curve scaled by its level."""
    gram, moment = np.zeros((len(common), len(common))), np.zeros(len(common))
    scale, ranks = np.zeros(len(common)), np.zeros(len(common))
    square, count = 0.0, 0
    for one, columns, level in zip(attributions, where, _levels(attributions), strict=True):
        states = np.arange(len(columns))
        rest = one.evidence.of_first(len(columns))
        np.add.at(gram, np.ix_(columns, columns), np.outer(level, level) * rest.gram)
        np.add.at(moment, columns, level * rest.moment)
        np.add.at(scale, columns, rest.scale[states] / level)
        np.add.at(ranks, columns, 1.0)
        square += rest.square
        count += rest.count

    def members(limited: bool) -> list[NDArray[np.intp]]:
        kinds = sorted({kind for kind, at_limit, _ in common if at_limit is limited})
        return [np.array([i for i, state in enumerate(common) if state[:2] == (kind, limited)]) for kind in kinds]

    return Evidence(
        gram=gram,
        moment=moment,
        square=square,
        count=count,
        curves=members(limited=False),
        clock=unit_clocks([mhz for *_, mhz in common]),
        scale=scale / ranks,
        noise=float(np.median([one.power.noise for one in attributions])),
        plateaus=members(limited=True),
    )


def _levels(attributions: Sequence[Attribution]) -> list[Array]:
    """Return the level of each state's curve, as a share of what the GPUs draw on average at the same clocks.

    Of two instructions that always alternate the sum is known, but hardly what each draws. So all curves together
    give a GPU's level, and where any curve is in doubt, all of its curves' levels follow that one.
    """
    drawn_w: dict[_Shared, list[tuple[float, float]]] = defaultdict(list)
    for one in attributions:
        doubt = max(_doubts(one))
        for state, power_w in zip(_shared(one), one.power.values, strict=False):
            drawn_w[state].append((float(power_w), doubt))
    typical = {state: _weighted(rows) for state, rows in drawn_w.items()}
    levels: list[Array] = []
    for one in attributions:
        typical_w = np.array([typical[state] for state in _shared(one)])
        times_s = {(key, point.frequency_mhz): point.time_s for key, row in one.curves.items() for point in row}
        lasted_s = np.array([times_s.get(state, 0.0) for state in one.states])
        together = float(lasted_s @ one.power.values[: len(lasted_s)] / (lasted_s @ typical_w))
        differ = _CURVES_DIFFER**2 / (_CURVES_DIFFER**2 + max(_doubts(one)) ** 2)
        level = np.empty(len(one.states))
        for members in (*one.evidence.curves, *one.evidence.plateaus):
            share = float(one.power.values[members].mean() / typical_w[members].mean())
            level[members] = together + (share - together) * differ
        levels.append(level)
    return levels


def _doubts(one: Attribution) -> list[float]:
    """Return the standard deviation of each curve's power, as a share of it."""
    return [float(one.power.sd[members].mean() / one.power.values[members].mean()) for members in one.evidence.curves]


def _weighted(values: Sequence[tuple[float, float]]) -> float:
    """Return the mean of values, weighted by their doubts, which are shares of them."""
    weights = [1.0 / (doubt**2 + _CERTAIN**2) for _, doubt in values]
    return float(np.average([value for value, _ in values], weights=weights))
