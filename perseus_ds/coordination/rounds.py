"""The few floats that every rank puts on the bus each iteration, and what a pipeline makes of its ranks' floats.

A pipeline's first rank condenses its ranks' signals to a row of eleven floats and two per stage; only such rows
travel between pipelines. All ranks see the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

__all__ = ["RankStatus", "RoundResult", "condense", "condensed_width"]

_NAN = float("nan")


@dataclass(frozen=True)
class RankStatus:
    """One rank's contribution to one round.

    Attributes:
        iteration: The training iteration that has just ended.
        iteration_time_s: From its begin to the next one's, evaluation left out.
        energy_j: Energy of the iteration before (the counter is read behind time); NaN when unknown.
        version: Newest plan table that this rank holds; 0 before the first.
        profiled: 1 when the rank's sweep has all it wants.
        failed: 1 + the rank when Perseus has failed there and must go off everywhere.
        switches: Clock switches requested in the iteration.
        late_switches: Requests that came after their instruction had begun.
        waited_s: How long the trainer has waited for the bus since the last round.
        hint_pipeline: Pipeline that is announced here as slow; NaN without an announcement.
        hint_slowdown: The slowdown announced; 1 takes an announcement back.
        slowdown: Measured over expected instruction time; 1 when not known.
        throttled_s: How long the driver said, since the round before, that something holds the clock down.
    """

    iteration: float
    iteration_time_s: float = _NAN
    energy_j: float = _NAN
    version: float = 0.0
    profiled: float = 0.0
    failed: float = 0.0
    switches: float = 0.0
    late_switches: float = 0.0
    waited_s: float = 0.0
    hint_pipeline: float = _NAN
    hint_slowdown: float = _NAN
    slowdown: float = 1.0
    throttled_s: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Return the floats in field order."""
        return tuple(getattr(self, name) for name in _NAMES)


_NAMES = [field.name for field in fields(RankStatus)]
_COLUMN = {name: column for column, name in enumerate(_NAMES)}
_PER_PIPELINE = _COLUMN["slowdown"]  # the fields from here on are kept by stage
_SUMMED = ("energy_j", "switches", "late_switches")
_LEAST = ("version", "profiled")
_HINT = slice(_COLUMN["hint_pipeline"], _COLUMN["hint_slowdown"] + 1)


def condense(rows: np.ndarray, stages: int) -> np.ndarray:
    """Make one row of a pipeline's signals.

    Energies and switches are added up; of versions and ``profiled`` the least counts, of all else the largest.
    Of a stage's tensor-parallel ranks the slowest counts.

    Args:
        rows: Array (ranks of the pipeline, fields of ``RankStatus``), ranks by stage, then tensor rank.
        stages: Number of stages.

    Returns:
        Floats: the fields up to ``hint_slowdown``, then a slowdown per stage, then ``throttled_s`` per stage.
    """
    whole = rows[:, :_PER_PIPELINE].max(axis=0)
    for name in _SUMMED:
        whole[_COLUMN[name]] = rows[:, _COLUMN[name]].sum()
    for name in _LEAST:
        whole[_COLUMN[name]] = rows[:, _COLUMN[name]].min()
    loudest = np.argmax(np.nan_to_num(rows[:, _COLUMN["hint_slowdown"]], nan=0.0))
    whole[_HINT] = rows[loudest, _HINT]
    by_stage = rows[:, _PER_PIPELINE:].reshape(stages, -1, len(_NAMES) - _PER_PIPELINE).max(axis=1)
    return np.concatenate((whole, by_stage.T.ravel()))


def condensed_width(stages: int) -> int:
    """Return how many floats ``condense`` makes."""
    return _PER_PIPELINE + (len(_NAMES) - _PER_PIPELINE) * stages


class RoundResult:
    """One round as all ranks see it.

    Args:
        rows: Array (pipelines, floats): what ``condense`` has made of each pipeline.
        stages: Number of stages.
    """

    def __init__(self, rows: np.ndarray, stages: int) -> None:
        self._rows = rows
        self._stages = stages

    def field(self, name: str) -> np.ndarray:
        """Return a field: array (pipelines,), or (pipelines, stages) of ``slowdown`` and ``throttled_s``."""
        column = _COLUMN[name]
        if column < _PER_PIPELINE:
            return self._rows[:, column]
        first = _PER_PIPELINE + (column - _PER_PIPELINE) * self._stages
        return self._rows[:, first : first + self._stages]

    @property
    def iteration(self) -> int:
        """The iteration that the round is about."""
        return int(self.field("iteration").max())

    @property
    def iteration_time_s(self) -> float:
        """The slowest rank's iteration time."""
        return float(self.field("iteration_time_s").max())

    @property
    def pipeline_energy_j(self) -> float:
        """Energy of one pipeline's iteration (mean over pipelines), of the iteration before."""
        return float(self.field("energy_j").mean())

    @property
    def version(self) -> int:
        """The newest plan table that every rank holds."""
        return int(self.field("version").min())

    @property
    def failed_rank(self) -> int | None:
        """A rank on which Perseus has failed; None without any."""
        failed = int(self.field("failed").max())
        return failed - 1 if failed else None

    @property
    def slowdowns(self) -> np.ndarray:
        """Array (pipelines, stages)."""
        return self.field("slowdown")

    @property
    def throttled(self) -> np.ndarray:
        """Array (pipelines, stages) of booleans."""
        return self.field("throttled_s") > 0

    @property
    def hints(self) -> dict[int, float]:
        """Slowdowns announced in this round by pipeline; the largest where several ranks announce."""
        hints: dict[int, float] = {}
        for pipeline, slowdown in zip(
            self.field("hint_pipeline").tolist(), self.field("hint_slowdown").tolist(), strict=True
        ):
            if pipeline == pipeline:
                hints[int(pipeline)] = max(hints.get(int(pipeline), 0.0), slowdown)
        return hints
