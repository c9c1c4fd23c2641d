"""What is known of curves over the clock before anything is measured: they are smooth, and like one another."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "VAGUE",
    "Curves",
    "common_parabola",
    "matern",
    "parabolas",
    "prior_covariance",
    "unit_clocks",
    "unknown_beforehand",
]

Array = NDArray[np.float64]
Curves = Sequence[NDArray[np.intp]]
"""The columns of each curve's states."""

VAGUE = 10.0
"""Standard deviation of what is not known beforehand, as a multiple of the value."""

_LEVELS_DIFFER = 0.25  # standard deviation of the levels of curves, as a share of them

_NOT_QUITE_FLAT = 0.05  # how far a plateau bends and slopes, as a share of it


def unit_clocks(clocks_mhz: Sequence[int]) -> Array:
    """Return clocks scaled to 0 ... 1."""
    clocks = np.array(clocks_mhz, dtype=float)
    return (clocks - clocks.min()) / max(np.ptp(clocks), 1.0)


def parabolas(curves: Curves, clock: Array, plateaus: Curves = ()) -> Array:
    """Return the basis of one parabola per curve, one constant per plateau, and one per lone state, shape (p, b)."""
    columns = [np.zeros((len(clock), 3)) for _ in curves]
    for column, states in zip(columns, curves, strict=True):
        column[states] = np.vander(clock[states], 3)
    return np.column_stack([*columns, _levels(plateaus, clock), _lone(curves, clock, plateaus)])


def common_parabola(curves: Curves, clock: Array, plateaus: Curves = ()) -> Array:
    """Return the basis of what all curves have in common, shape (p, 3); a plateau stays as high as it begins."""
    together = np.concatenate(curves)
    basis = np.zeros((len(clock), 3))
    basis[together] = np.vander(clock[together], 3)
    for states in plateaus:
        basis[states] = np.vander([clock[states].min()], 3)
    return basis


def _levels(curves: Curves, clock: Array) -> Array:
    levels = np.zeros((len(clock), len(curves)))
    for column, states in enumerate(curves):
        levels[states, column] = 1.0
    return levels


def _lone(curves: Curves, clock: Array, plateaus: Curves) -> Array:
    return np.delete(np.eye(len(clock)), np.concatenate([*curves, *plateaus]), axis=1)


def unknown_beforehand(curves: Curves, clock: Array, plateaus: Curves = ()) -> Array:
    """Return what is not known beforehand, shape (p, b).

    It is the curves' common level, slope and bend, each one's level roughly, and each lone state.
    """
    levels = _LEVELS_DIFFER * _levels([*curves, *plateaus], clock)
    common, lone = common_parabola(curves, clock, plateaus), _lone(curves, clock, plateaus)
    return np.column_stack([levels, VAGUE * common, VAGUE * lone])


def prior_covariance(
    curves: Curves,
    clock: Array,
    length: float,
    smooth: float,
    own: float,
    free: float,
    plateaus: Curves = (),
    waves: float = inf,
) -> Array:
    """Return how values vary and go together beforehand, as shares of their scale, up to what is not known at all.

    Args:
        curves: For each curve, the columns of its states.
        clock: Each state's clock, scaled to about 0 … 1, shape (p,).
        length: Correlation length, as a share of the clock's range.
        smooth: Standard deviation of what all curves have in common beyond a parabola.
        own: Standard deviation of each curve's own smooth part; its slope and bend are as uncertain.
        free: Standard deviation of each point's own.
        plateaus: The columns of each curve that is nearly flat.
        waves: Standard deviation of each curve's own smooth part beyond a parabola, at most.

    Returns:
        The covariance, shape (p, p).
    """
    alike = matern(clock, length)
    slopes = np.outer(clock, clock) + np.outer(clock**2, clock**2)
    covariance = free**2 * np.eye(len(clock))
    together = np.concatenate(curves)
    covariance[np.ix_(together, together)] += smooth**2 * alike[np.ix_(together, together)]
    for states in plateaus:
        flat = _NOT_QUITE_FLAT**2 * (alike + np.outer(clock, clock))
        covariance[np.ix_(states, states)] += flat[np.ix_(states, states)]
    for states in curves:
        its_own = min(own, waves) ** 2 * alike + own**2 * slopes
        covariance[np.ix_(states, states)] += its_own[np.ix_(states, states)]
    return covariance


def matern(clock: Array, length: float) -> Array:
    """Return the correlation of values at two clocks (Matern kernel, smoothness 5/2), shape (p, p)."""
    distance = np.abs(clock[:, None] - clock) * np.sqrt(5.0) / length
    return (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
