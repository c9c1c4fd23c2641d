"""A GPU's energy by what it did: each kind of instruction, waiting, and other work. No clock need be set for it.

The energy counter is slower than instructions are. So the powers are those of the profile, or are fitted to many
iterations, as for one. Each is multiplied by the time that it lasted. The sum is what the counter says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.spans import Between, Segment, Span
from perseus_ds.profiling.table import CurveKey

__all__ = ["KindEnergy", "RankEnergy", "energy_by_kind", "few_rows"]


@dataclass(frozen=True)
class KindEnergy:
    """What a GPU used for one kind of instruction, waiting or other work, per iteration.

    Attributes:
        kind: A kind of instruction, ``waiting`` or ``other_work``.
        instructions: How many there were; 0 for the other two.
        time_s: How long they took together.
        energy_j: What they used together.
    """

    kind: str
    instructions: float
    time_s: float
    energy_j: float


@dataclass(frozen=True)
class RankEnergy:
    """One rank's energy of one kind.

    Attributes:
        rank: Of the job; None: the mean over all ranks of the stage.
        pipeline: Its pipeline; None beside such a mean.
        stage: Its stage.
        energy: Per iteration.
    """

    rank: int | None
    pipeline: int | None
    stage: int
    energy: KindEnergy


def energy_by_kind(
    spans: Sequence[Span],
    samples: Sequence[tuple[float, float]],
    iterations: int,
    switch_latency_s: float = 0.0,
    found: Attribution | None = None,
    usual_period_s: float = 0.0,
) -> list[KindEnergy]:
    """Split a GPU's energy up.

    Args:
        spans: Work of whole iterations, in order of time, without evaluation.
        samples: (monotonic time, joules) of each changed point of the energy counter.
        iterations: How many iterations the spans are of.
        switch_latency_s: From a clock request to the new clock.
        found: The GPU's powers; None: those that ``spans`` tell.
        usual_period_s: About the time between two updates of the counter; 0: not known.

    Returns:
        One row per kind, by name; waiting and other work come last.

    Raises:
        PerseusError: Nothing was found before, and the counter hardly moved during the spans.
    """
    found = found or attribute(spans, samples, switch_latency_s, usual_period_s=usual_period_s)
    times_s: dict[str, float] = defaultdict(float)
    energies_j: dict[str, float] = defaultdict(float)
    did = found.did(spans, switch_latency_s)
    for one in did:
        lasted_s = one.end_s - one.begin_s
        times_s[_name(one)] += lasted_s
        energies_j[_name(one)] += lasted_s * found.power_w(one)
    counted_j = np.interp([did[0].begin_s, did[-1].end_s], *np.transpose(samples))
    factor = float(counted_j[1] - counted_j[0]) / sum(energies_j.values())
    counts = Counter(span.key.kind.value for span in spans if span.key is not None)
    names = [*sorted(counts), *(name for name in map(_between, Between) if name in times_s)]
    return [
        KindEnergy(name, counts[name] / iterations, times_s[name] / iterations, factor * energies_j[name] / iterations)
        for name in names
    ]


def few_rows(rows: Sequence[RankEnergy], most: int) -> tuple[RankEnergy, ...]:
    """Return the rows of all ranks, or where there are too many the mean over each stage's ranks.

    Args:
        rows: Every rank's.
        most: So many rows are not too many.
    """
    if len(rows) <= most:
        return tuple(rows)
    alike: dict[tuple[int, str], list[KindEnergy]] = defaultdict(list)
    for row in rows:
        alike[row.stage, row.energy.kind].append(row.energy)
    means = {which: np.mean([astuple(one)[1:] for one in ones], axis=0).tolist() for which, ones in alike.items()}
    return tuple(RankEnergy(None, None, stage, KindEnergy(kind, *means[stage, kind])) for stage, kind in sorted(means))


def _name(one: Segment) -> str:
    return one.what.kind.value if isinstance(one.what, CurveKey) else _between(one.what)


def _between(what: Between) -> str:
    return what.value.replace(" ", "_")
