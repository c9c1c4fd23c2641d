"""Micro-batches of different sizes: whether they differ, and how large each one was.

All instructions of a micro-batch tell its size: how much longer they took than others at the same clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.spans import Batch, Segment, Span
from perseus_ds.profiling.table import CurveKey

__all__ = ["microbatch_sizes", "sized", "uneven_within"]

_ALIKE = 0.03  # relative standard deviation up to which micro-batches are alike
_QUARTILE = 0.6745  # of a normal distribution, in standard deviations
_TERMS = 4  # of 1 / clock
_DELAYED = 0.05  # relative residual from which an instruction hardly counts: a late host may double its time
_ROUNDS = 12  # each brings sizes and curves several times closer to the least squares of both

_Told = tuple[CurveKey, int, float, Batch]
"""Curve, clock and duration of an instruction, and its micro-batch."""


def uneven_within(relative: NDArray[np.float64]) -> bool:
    """Return whether times at one clock differ by more than measuring them does.

    Args:
        relative: Times, as multiples of what is usual. A late host delays many, and hastens none: the shorter ones
            tell.
    """
    shorter = np.log(np.quantile(relative, (0.25, 0.5)))
    return float(shorter[1] - shorter[0]) > _QUARTILE * _ALIKE


def microbatch_sizes(did: Sequence[Segment]) -> dict[Batch, float]:
    """Return the work of each micro-batch, as a multiple of the mean; empty where all are alike.

    Sizes, and a polynomial of 1 / clock for each curve, are fitted together; delayed instructions hardly count.

    Args:
        did: What the GPU did; only instructions under which the clock did not change tell.
    """
    told = [
        (one.what, one.clock_mhz, one.end_s - one.begin_s, one.batch)
        for one in did
        if one.whole and one.batch is not None and isinstance(one.what, CurveKey)
    ]
    repeated = _at_one_clock(told)
    if not told or (len(repeated) and not uneven_within(repeated)):
        return {}
    keys, clocks_mhz, seconds, batches = zip(*told, strict=True)
    slowness = min(clocks_mhz) / np.array(clocks_mhz)
    names, batch = np.unique(np.array(batches), axis=0, return_inverse=True)
    batch = batch.ravel()
    curves = [np.flatnonzero([one == key for one in keys]) for key in dict.fromkeys(keys)]
    terms = [slowness[mine, None] ** np.arange(min(_TERMS, len(set(slowness[mine])))) for mine in curves]
    log_s, log_size = np.log(seconds), np.zeros(len(names))
    left, weight = np.zeros(len(told)), np.ones(len(told))
    for _ in range(_ROUNDS):
        for mine, powers in zip(curves, terms, strict=True):
            root, wanted = np.sqrt(weight[mine]), log_s[mine] - log_size[batch[mine]]
            left[mine] = log_s[mine] - powers @ np.linalg.lstsq(root[:, None] * powers, root * wanted)[0]
        log_size = np.bincount(batch, weight * left) / np.bincount(batch, weight)
        weight = 1.0 / (1.0 + ((left - log_size[batch]) / _DELAYED) ** 2)
    sizes = np.exp(log_size) / np.exp(log_size).mean()
    return dict(zip(map(tuple, names.tolist()), sizes.tolist(), strict=True)) if uneven_within(sizes) else {}


def sized(spans: Sequence[Span], sizes: Mapping[Batch, float]) -> Sequence[Span]:
    """Return spans with the sizes of their micro-batches, if these differ.

    Args:
        spans: Work of a GPU.
        sizes: Of each micro-batch, see ``microbatch_sizes``.
    """
    if not sizes:
        return spans
    return [span if span.batch is None else replace(span, size=sizes.get(span.batch, nan)) for span in spans]


def _at_one_clock(told: Sequence[_Told]) -> NDArray[np.float64]:
    """Return the times of curves that ran more than once at a clock, as multiples of the usual one.

    Without a fit they tell whether sizes differ: a curve that is no polynomial looks like sizes that follow the clock.
    """
    alike: dict[tuple[CurveKey, int], list[float]] = defaultdict(list)
    for key, mhz, seconds, _ in told:
        alike[key, mhz].append(seconds)
    repeated = [np.array(seconds) / np.median(seconds) for seconds in alike.values() if len(seconds) > 1]
    return np.concatenate(repeated) if repeated else np.empty(0)
