"""The planning problem: a pipeline, its measured curves, and the accounting of energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.hull import Options, pareto_options
from perseus_ds.frontier.uneven import Uneven
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.dag import PipelineDag
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

__all__ = ["Problem"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """One pipeline to plan.

    An iteration of length T uses, per GPU, every instruction's energy plus blocking power for the rest of T (Perseus,
    SOSP '24, section 4.1).

    Attributes:
        dag: The pipeline's iteration.
        profile: Curves of one GPU of each stage.
        blocking_power_w: Power of a waiting GPU: one number, or one per stage.
        gpus_per_stage: Identical GPUs per stage; all energies are multiplied by it.
        uneven: How its micro-batches differ; None: they are alike.
        rested: Of instructions that a rest makes faster at the highest clock, or its absence slower: multiples of their
            curves' time there; see ``with_rests``.

    Raises:
        PerseusError: A blocking power is negative, or the profile lacks a curve.
    """

    dag: PipelineDag
    profile: Profile
    blocking_power_w: float | Sequence[float]
    gpus_per_stage: int = 1
    uneven: Uneven | None = None
    rested: Mapping[Instruction, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        power = np.asarray(self.blocking_power_w, dtype=np.float64)
        if power.shape not in ((), (self.dag.stages,)) or not (np.isfinite(power).all() and (power >= 0).all()):
            allowed = f"watts, 0 or more: one number or one for each of {self.dag.stages} stages"
            raise PerseusError("plan-bad-value", name="blocking power", value=self.blocking_power_w, allowed=allowed)
        if self.gpus_per_stage < 1:
            raise PerseusError("plan-bad-value", name="GPUs per stage", value=self.gpus_per_stage, allowed="from 1")

    @cached_property
    def stage_power_w(self) -> FloatArray:
        """Blocking power of one GPU of each stage, shape (stages,)."""
        return np.broadcast_to(np.asarray(self.blocking_power_w, dtype=np.float64), (self.dag.stages,))

    @cached_property
    def _distinct(self) -> tuple[tuple[CurveKey, float], ...]:
        """The distinct curves, with the multiple of their time at the highest clock."""
        return tuple(sorted({self._curve_of(instruction) for instruction in self.dag.instructions}))

    def _curve_of(self, instruction: Instruction) -> tuple[CurveKey, float]:
        return CurveKey.of(instruction), self.rested.get(instruction, 1.0)

    @cached_property
    def keys(self) -> tuple[CurveKey, ...]:
        """The keys of the pipeline's distinct curves; one comes again where a rest makes several of a curve."""
        return tuple(key for key, _ in self._distinct)

    @cached_property
    def curves(self) -> tuple[tuple[ProfilePoint, ...], ...]:
        """The points of each of ``keys``, by frequency descending."""
        found = []
        for key, multiple in self._distinct:
            top, *lower = self.profile.curve(key)
            found.append((top._replace(time_s=multiple * top.time_s), *lower))
        return tuple(found)

    @cached_property
    def curve_of(self) -> IntArray:
        """Index into ``keys`` of each instruction, shape (instructions,)."""
        index = {curve: i for i, curve in enumerate(self._distinct)}
        return np.array([index[self._curve_of(one)] for one in self.dag.instructions], dtype=np.int64)

    @cached_property
    def options(self) -> tuple[Options, ...]:
        """The Pareto options of each of ``keys``."""
        return self.thinned(0.0)

    def thinned(self, tolerance: float) -> tuple[Options, ...]:
        """Return the Pareto options of each of ``keys``, hulls thinned to a relative energy error."""
        return tuple(
            pareto_options(curve, float(self.stage_power_w[key.stage]), tolerance)
            for key, curve in zip(self.keys, self.curves, strict=True)
        )

    def energy_j(self, effective_j: float, time_s: float) -> float:
        """Return the pipeline's energy.

        Args:
            effective_j: Sum of the instructions' effective energies on one GPU per stage.
            time_s: Length of the iteration, including waiting.
        """
        return max(0.0, self.gpus_per_stage * (effective_j + float(self.stage_power_w.sum()) * time_s))
