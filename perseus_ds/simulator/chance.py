"""Reproducible random numbers, determined by a seed and an index."""

from __future__ import annotations

import math

__all__ = ["exponential", "normal", "uniform"]

_MASK = (1 << 64) - 1


def uniform(seed: int, index: int) -> float:
    """Return the ``index``-th number of a uniform sequence in (0, 1) (splitmix64)."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return ((z >> 11) + 0.5) / 9007199254740992.0


def normal(seed: int, index: int) -> float:
    """Return the ``index``-th number of a standard normal sequence (Box-Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(seed, 2 * index)))
    return radius * math.cos(2.0 * math.pi * uniform(seed, 2 * index + 1))


def exponential(seed: int, index: int) -> float:
    """Return the ``index``-th number of an exponential sequence of mean 1."""
    return -math.log(uniform(seed, index))
