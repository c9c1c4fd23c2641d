"""The few floats that every rank puts on the bus each iteration, and what a pipeline makes of its ranks' floats.

A pipeline's first rank condenses its ranks' signals to a row of thirteen floats and three per stage; only such rows
travel between pipelines. All ranks see the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from perseus_ds.coordination.orders import Order, order_of

__all__ = ["RankStatus", "RoundResult", "condense", "condensed_width"]

_NAN = float("nan")


@dataclass(frozen=True)
class RankStatus:
    """One rank's contribution to one round.

    Attributes:
        iteration: The training iteration that has just ended.
        iteration_time_s: From its begin to the next one's, without evaluation.
        energy_j: Energy of the previous iteration (the counter lags); NaN when unknown.
        version: Newest plan table on this rank; 0 before the first.
        profiled: 1 when the rank's sweep is complete.
        failed: 1 + the rank if Perseus has failed there and must turn off everywhere.
        switches: Clock switches requested in the iteration.
        late_switches: Clocks that came after the first 3 % of their instruction.
        share_at_clock: Median share of an instruction's time at its planned clock; NaN when unknown.
        waited_s: Time that the trainer has waited for the bus since the last round.
        keeperless: 1 while the rank has no clock keeper, which leaves its clocks at their defaults.
        order: Kind of the order that this rank passes on; NaN without one.
        order_subject: Subject of the order.
        order_value: Value of the order.
        slowdown: Measured over expected instruction time; 1 when unknown, NaN while nothing is newer.
        throttled_s: Time of throttling reported by the driver since the previous round.
        ceiling: Minus the clock, in MHz, that the GPU is held at, so that the lowest is the largest; −inf without one.
    """

    iteration: float
    iteration_time_s: float = _NAN
    energy_j: float = _NAN
    version: float = 0.0
    profiled: float = 0.0
    failed: float = 0.0
    switches: float = 0.0
    late_switches: float = 0.0
    share_at_clock: float = _NAN
    waited_s: float = 0.0
    keeperless: float = 0.0
    order: float = _NAN
    order_subject: float = _NAN
    order_value: float = _NAN
    slowdown: float = 1.0
    throttled_s: float = 0.0
    ceiling: float = -math.inf

    def row(self) -> tuple[float, ...]:
        """Return the floats in field order."""
        return tuple(getattr(self, name) for name in _NAMES)

    def with_order(self, order: Order) -> RankStatus:
        """Return a copy that passes on an order."""
        kind, subject, value = order.to_floats()
        return replace(self, order=kind, order_subject=subject, order_value=value)


_NAMES = [field.name for field in fields(RankStatus)]
_COLUMN = {name: column for column, name in enumerate(_NAMES)}
_PER_PIPELINE = _COLUMN["slowdown"]  # the fields from here on are kept by stage
# Ranks of a job take equally long on average: the slowest rank of each iteration would add up to more than has passed.
_MEAN = _COLUMN["iteration_time_s"]
_SUMMED = [_COLUMN[name] for name in ("energy_j", "switches", "late_switches", "keeperless")]
_LEAST = [_COLUMN[name] for name in ("version", "profiled", "share_at_clock")]
_ORDER = slice(_COLUMN["order"], _COLUMN["order_value"] + 1)


def condense(rows: np.ndarray, stages: int) -> np.ndarray:
    """Reduce the statuses of a pipeline to one row.

    The row holds the mean iteration time, the sums of energies and switches, and the least version, ``profiled`` and
    ``share_at_clock``. Of everything else it holds the largest. The slowest tensor-parallel rank counts for its stage.
    Of several orders one goes on; the others come again.

    Args:
        rows: Array (ranks of the pipeline, fields of ``RankStatus``), ranks by stage, then tensor rank.
        stages: Number of stages.

    Returns:
        Floats: the fields up to ``order_value``, then slowdown, ``throttled_s`` and ceiling, each per stage.
    """
    whole = rows[:, :_PER_PIPELINE].max(axis=0)
    whole[_MEAN] = rows[:, _MEAN].mean()
    whole[_SUMMED] = rows[:, _SUMMED].sum(axis=0)
    whole[_LEAST] = rows[:, _LEAST].min(axis=0)
    orders = rows[~np.isnan(rows[:, _COLUMN["order"]]), _ORDER].tolist()
    whole[_ORDER] = max(orders, default=_NAN)
    by_stage = np.fmax.reduce(rows[:, _PER_PIPELINE:].reshape(stages, -1, len(_NAMES) - _PER_PIPELINE), axis=1)
    return np.concatenate((whole, by_stage.T.ravel()))


def condensed_width(stages: int) -> int:
    """Return the length of a row of ``condense``."""
    return _PER_PIPELINE + (len(_NAMES) - _PER_PIPELINE) * stages


class RoundResult:
    """One round, the same on all ranks.

    Args:
        rows: Array (pipelines, floats): the row of each pipeline from ``condense``.
        stages: Number of stages.
    """

    def __init__(self, rows: np.ndarray, stages: int) -> None:
        self._rows = rows
        self._stages = stages

    def field(self, name: str) -> np.ndarray:
        """Return a field: array (pipelines,), or (pipelines, stages) of those from ``slowdown`` on."""
        column = _COLUMN[name]
        if column < _PER_PIPELINE:
            return self._rows[:, column]
        first = _PER_PIPELINE + (column - _PER_PIPELINE) * self._stages
        return self._rows[:, first : first + self._stages]

    @cached_property
    def iteration(self) -> int:
        """The iteration of the round."""
        return int(self.field("iteration").max())

    @cached_property
    def iteration_time_s(self) -> float:
        """The mean of all ranks' iteration times."""
        return float(self.field("iteration_time_s").mean())

    @property
    def pipeline_energy_j(self) -> float:
        """Energy of one pipeline's iteration (mean over pipelines), of the iteration before."""
        return float(self.field("energy_j").mean())

    @cached_property
    def version(self) -> int:
        """The newest plan table on every rank."""
        return int(self.field("version").min())

    @property
    def failed_rank(self) -> int | None:
        """A rank with a failed Perseus; None without any."""
        failed = int(self.field("failed").max())
        return failed - 1 if failed else None

    @cached_property
    def slowdowns(self) -> np.ndarray:
        """Array (pipelines, stages)."""
        return self.field("slowdown")

    @property
    def throttled(self) -> np.ndarray:
        """Array (pipelines, stages) of booleans."""
        return self.field("throttled_s") > 0

    @property
    def ceilings_mhz(self) -> np.ndarray:
        """Array (pipelines, stages): the clock that a stage's GPU is held at, 0 without one."""
        ceilings = self.field("ceiling")
        return np.where(np.isfinite(ceilings), -ceilings, 0.0)

    @cached_property
    def orders(self) -> list[Order]:
        """The orders of this round, at most one per pipeline; orders on one subject end with the largest value."""
        rows = np.stack([self.field(name) for name in ("order", "order_subject", "order_value")], axis=1)
        told = {tuple(row) for row in rows.tolist() if row[0] == row[0]}
        return [order for row in sorted(told) if (order := order_of(row))]
