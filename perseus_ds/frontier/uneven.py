"""Micro-batches that differ: packed sequences, routed tokens, sequences cut by length.

An iteration then ends later than its mean instructions tell: where paths join, the longest one counts. What the
micro-batches of the baseline were like is drawn anew, each with all its instructions on all stages, so that what
belongs together stays together (a bootstrap: Efron, Annals of Statistics 7(1), 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.table import CurveKey

__all__ = ["Uneven", "sizes_seen"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Uneven:
    """The micro-batches of a pipeline.

    Attributes:
        sizes: Of each micro-batch seen, the times of its instructions as multiples of their curves' means, shape
            (micro-batches, curves).
        tail_s: What their differences add to an iteration at the highest clocks; the DAG's tail holds it, too.
    """

    sizes: FloatArray
    tail_s: float = 0.0

    @property
    def spread(self) -> float:
        """Relative standard deviation of an instruction's time at one clock."""
        return float(np.sqrt(self.sizes.var(axis=0).mean()))

    def drawn(
        self,
        instructions: Sequence[Instruction],
        curve_of: NDArray[np.int64],
        chance: np.random.Generator,
        samples: int,
    ) -> FloatArray:
        """Draw iterations of such micro-batches, shape (samples, instructions).

        Args:
            instructions: Of one iteration.
            curve_of: Column of each in ``sizes``.
            chance: Of the draws.
            samples: Number of draws.
        """
        microbatch = np.array([one.microbatch for one in instructions])
        which = chance.integers(0, len(self.sizes), (samples, 1 + microbatch.max(initial=-1)))
        return self.sizes[which[:, microbatch], curve_of]


def sizes_seen(traces: Sequence[StageTrace], keys: Sequence[CurveKey]) -> FloatArray | None:
    """Return ``Uneven.sizes`` of a traced iteration; None where all micro-batches are alike.

    What one stage does not tell of a micro-batch is the mean of what it tells.

    Args:
        traces: One per stage, of the same iterations.
        keys: The curves.
    """
    count = min((len(trace.sizes) for trace in traces if trace.sizes), default=0)
    if not count:
        return None
    column = {key: index for index, key in enumerate(keys)}
    work = [[Instruction.of(trace.stage, one.operation) for one in trace.instructions] for trace in traces]
    microbatches = 1 + max(one.microbatch for mine in work for one in mine)
    seen = np.full((count, microbatches, len(keys)), np.nan)
    for trace, mine in zip(traces, work, strict=True):
        for index, one in enumerate(mine):
            of_iteration = [row[index] for row in trace.sizes[-count:]] or [1.0] * count
            seen[:, one.microbatch, column[CurveKey.of(one)]] = of_iteration
    sizes = seen.reshape(-1, len(keys))
    sizes = np.where(np.isnan(sizes), np.nanmean(sizes, axis=1, keepdims=True), sizes)
    return sizes / sizes.mean(axis=0)
