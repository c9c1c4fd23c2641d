"""GPUs of one model that run like layers make each other's energies sharper.

Their power curves have one shape, and nearly one level. Fitted to the increments of all of them it shows details
that a single GPU's noise hides. Each GPU is then fitted again, as a deviation from what they have in common: how
far GPUs deviate, all their increments together say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.regression import CurveFit, Evidence, matern, posteriors, refit, unit_clocks

__all__ = ["pool"]

Array = NDArray[np.float64]
Columns = Sequence[NDArray[np.intp]]

# Standard deviations from the common curves: of a GPU's level and of each of its curves' (in pairs), of each curve's
# smooth deviation, and of each point's own.
_LEVELS = ((0.003, 0.002), (0.02, 0.006), (0.2, 0.1))
_DEVIATIONS = tuple(product(_LEVELS, (0.001, 0.005, 0.03), (0.0005, 0.002, 0.006)))
_LENGTH = 0.4
_VAGUE = 10.0


def pool(attributions: Sequence[Attribution]) -> list[Attribution]:
    """Sharpen every GPU's energies by the others'.

    Args:
        attributions: Of GPUs of one model.

    Returns:
        The same with energies and their intervals changed, in the same order.
    """
    if len(attributions) < 2:
        return list(attributions)
    common = sorted({(key.kind, mhz) for one in attributions for key, mhz in one.states})
    column = {state: index for index, state in enumerate(common)}
    where = [np.array([column[key.kind, mhz] for key, mhz in one.states]) for one in attributions]
    fit = refit(_together(attributions, common, where))
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


def _with_lone(values: Array, one: Attribution) -> Array:
    """Append zeros for what is not expected to be alike: waiting and other work."""
    return np.append(values, np.zeros(len(one.power.values) - len(values)))


def _deviations(evidence: Evidence, expected: Array) -> Iterator[Array]:
    """Yield the covariance of the deviation from the expected values, shape (p, p), for each size of it."""
    same_curve = np.zeros_like(evidence.gram)
    for members in evidence.curves:
        same_curve[np.ix_(members, members)] = 1.0
    alike = same_curve * matern(evidence.clock, _LENGTH)
    lone = np.diag(np.where(expected == 0.0, _VAGUE * evidence.scale, 0.0) ** 2)
    sizes = np.outer(expected, expected)
    for (gpu, level), smooth, free in _DEVIATIONS:
        relative = gpu**2 + level**2 * same_curve + smooth**2 * alike + free**2 * np.eye(len(expected))
        yield sizes * relative + lone


def _together(attributions: Sequence[Attribution], common: Sequence[tuple[Kind, int]], where: Columns) -> Evidence:
    """Add up the evidence of all GPUs for the curves that they share, each curve scaled by its level."""
    gram, moment = np.zeros((len(common), len(common))), np.zeros(len(common))
    scale, ranks = np.zeros(len(common)), np.zeros(len(common))
    square, count = 0.0, 0
    for one, columns, level in zip(attributions, where, _levels(attributions), strict=True):
        states = np.arange(len(columns))
        # What waiting and other work take is well known: it is subtracted.
        lone = one.power.values.copy()
        lone[states] = 0.0
        rest = one.evidence.beyond(lone)
        np.add.at(gram, np.ix_(columns, columns), np.outer(level, level) * rest.gram[np.ix_(states, states)])
        np.add.at(moment, columns, level * rest.moment[states])
        np.add.at(scale, columns, rest.scale[states] / level)
        np.add.at(ranks, columns, 1.0)
        square += rest.square
        count += rest.count
    kinds = sorted({kind for kind, _ in common})
    curves = [np.array([i for i, state in enumerate(common) if state[0] is kind]) for kind in kinds]
    return Evidence(
        gram=gram,
        moment=moment,
        square=square,
        count=count,
        curves=curves,
        clock=unit_clocks([mhz for _, mhz in common]),
        scale=scale / ranks,
        noise=float(np.median([one.power.noise for one in attributions])),
    )


def _levels(attributions: Sequence[Attribution]) -> list[Array]:
    """Return the level of each state's curve as a share of the mean over all curves of its kind."""
    means: list[Array] = []
    by_kind: dict[Kind, list[float]] = defaultdict(list)
    for one in attributions:
        mean_w = np.empty(len(one.states))
        for members in one.evidence.curves:
            level_w = float(one.power.values[members].mean())
            mean_w[members] = level_w
            by_kind[one.states[members[0]][0].kind].append(level_w)
        means.append(mean_w)
    typical_w = {kind: np.mean(levels) for kind, levels in by_kind.items()}
    return [
        mean_w / np.array([typical_w[key.kind] for key, _ in one.states])
        for one, mean_w in zip(attributions, means, strict=True)
    ]
