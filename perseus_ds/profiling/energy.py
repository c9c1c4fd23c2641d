"""Time and energy of every instruction kind at every clock, and blocking power, from live training.

Nothing is measured alone: the energy counter is too slow for single instructions. What ran when (the
recorder) and how the counter moved (the clock keeper) are put together over many iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.profiling.counter import CounterTrace, SampledWindow, Timeline, counter_trace, find_window
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.profiling.regression import CONFIDENCE, CurveFit, Evidence, parabolas, regress, unit_clocks
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.profiling.times import instruction_times

__all__ = ["Attribution", "Span", "attribute", "spans_of"]

# Of the power while waiting: the sampled window is fitted too, and its error is none of the regression's.
_WINDOW_SD = 0.002


@dataclass(frozen=True)
class Span:
    """A GPU at work.

    Attributes:
        begin_s: Begin on ``time.monotonic()``.
        end_s: End on ``time.monotonic()``.
        key: The curve of an instruction; None for other work (optimizer, reduction, loading).
        frequency_mhz: SM clock asked for while it ran; 0 for other work.
        asked_s: The instruction's clock was asked for at the end of the one before, but not before this time.
        excluded: Whatever the energy counter saw of it is left out: evaluation.
    """

    begin_s: float
    end_s: float
    key: CurveKey | None
    frequency_mhz: int = 0
    asked_s: float = -inf
    excluded: bool = False


@dataclass(frozen=True)
class Attribution:
    """What one GPU's profile says.

    Attributes:
        curves: Points of each curve by frequency descending, with 95 % confidence intervals.
        instances: How many instructions each point's time comes from.
        period_s: Update period of the energy counter.
        window: The part of the period in which the GPU looks at its power.
        states: What the powers belong to: curve and MHz; after these come waiting and other work.
        power: The powers that the energies follow from.
        evidence: What the powers were fitted to.
    """

    curves: Mapping[CurveKey, tuple[ProfilePoint, ...]]
    instances: Mapping[tuple[CurveKey, int], int]
    period_s: float
    window: SampledWindow
    states: tuple[tuple[CurveKey, int], ...]
    power: CurveFit
    evidence: Evidence

    @property
    def blocking_power_w(self) -> float:
        """Power while waiting."""
        return float(self.power.values[len(self.states)])

    @property
    def blocking_power_ci_w(self) -> float:
        """Half width of the 95 % confidence interval of the power while waiting."""
        return CONFIDENCE * hypot(self.power.sd[len(self.states)], _WINDOW_SD * self.blocking_power_w)

    def with_power(self, power: CurveFit) -> Attribution:
        """Return the same with other powers, and the energies that follow from them."""
        column = {state: index for index, state in enumerate(self.states)}

        def point(key: CurveKey, old: ProfilePoint) -> ProfilePoint:
            state = column[key, old.frequency_mhz]
            power_w, power_ci_w = float(power.values[state]), CONFIDENCE * float(power.sd[state])
            energy_ci_j = hypot(power_ci_w * old.time_s, power_w * old.time_ci_s)
            return old._replace(energy_j=power_w * old.time_s, energy_ci_j=energy_ci_j)

        curves = {key: tuple(point(key, old) for old in points) for key, points in self.curves.items()}
        return replace(self, curves=curves, power=power)


def spans_of(iteration: RecordedIteration, stage: int) -> list[Span]:
    """Return the work of a recorded iteration; whatever is between is waiting.

    Args:
        iteration: One rank's operations.
        stage: The rank's pipeline stage.

    Returns:
        Spans in program order; of an evaluation one that is left out as a whole.
    """
    if not iteration.training:
        return [Span(iteration.begin_s, iteration.end_s, None, excluded=True)]
    spans = []
    for timed in iteration.operations:
        kind = timed.operation.kind
        begin_s, end_s = iteration.begin_s + timed.begin_s, iteration.begin_s + timed.end_s
        if kind.is_instruction and timed.frequency_mhz:  # without a clock of ours it belongs to no curve
            key = CurveKey.of(Instruction.of(stage, timed.operation))
            spans.append(Span(begin_s, end_s, key, timed.frequency_mhz, iteration.begin_s))
        elif not kind.is_communication:
            spans.append(Span(begin_s, end_s, None))
    return spans


def attribute(
    spans: Sequence[Span],
    samples: Sequence[tuple[float, float]],
    switch_latency_s: float = 0.0,
    window: SampledWindow | None = None,
) -> Attribution:
    """Attribute a GPU's energy to its instructions and its waiting.

    Args:
        spans: Work of many iterations, in order of time; the GPU waits between them.
        samples: (monotonic time, joules) of each changed point of the energy counter.
        switch_latency_s: From a clock request to the new clock; an instruction under which the clock changes
            says nothing about times.
        window: The counter's sampled window if already known; default: found from the data.

    Returns:
        The attribution. Points without an undisturbed instance are left out.

    Raises:
        PerseusError: The counter hardly moved while the spans ran.
    """
    clocked, undisturbed = _settle(spans, switch_latency_s)
    points, instances = instruction_times(undisturbed)
    excluded = [(span.begin_s, span.end_s) for span in spans if span.excluded]
    trace = counter_trace(samples, spans[0].begin_s, spans[-1].end_s, excluded) if points else None
    if trace is None:
        raise PerseusError("profiling-no-energy", updates=len(samples), instructions=len(undisturbed))
    states = tuple(sorted({(span.key, span.frequency_mhz) for span in clocked if span.key is not None}))
    try:
        found, fit, evidence = _powers(clocked, states, trace, window)
    except np.linalg.LinAlgError as error:
        # Too few increments for so many unknowns.
        raise PerseusError("profiling-no-energy", updates=len(samples), instructions=len(undisturbed)) from error
    return Attribution(points, instances, trace.period_s, found, states, fit, evidence).with_power(fit)


def _settle(spans: Sequence[Span], latency_s: float) -> tuple[list[Span], list[tuple[CurveKey, int, float]]]:
    """Cut spans where the clock changes under them; return all parts, and what the whole instructions took."""
    parts: list[Span] = []
    whole: list[tuple[CurveKey, int, float]] = []
    clock = asked = 0
    settled_s = free_s = -inf
    for span in spans:
        if span.key is None:
            parts.append(span)
            continue
        # At an iteration's begin the clock is asked for anew, whatever was asked for in between.
        if span.frequency_mhz != asked or span.asked_s > free_s:
            clock = asked or span.frequency_mhz
            asked = span.frequency_mhz
            settled_s = max(free_s, span.asked_s) + latency_s
        free_s = span.end_s
        if settled_s <= span.begin_s:
            parts.append(span)
            whole.append((span.key, asked, span.end_s - span.begin_s))
            continue
        cut_s = min(settled_s, span.end_s)
        parts.append(replace(span, end_s=cut_s, frequency_mhz=clock))
        if cut_s < span.end_s:
            parts.append(replace(span, begin_s=cut_s))
    return parts, whole


def _powers(
    spans: Sequence[Span],
    states: Sequence[tuple[CurveKey, int]],
    trace: CounterTrace,
    window: SampledWindow | None,
) -> tuple[SampledWindow, CurveFit, Evidence]:
    """Return the sampled window, and the powers of the states, then of waiting, then of other work."""
    column = {state: index for index, state in enumerate(states)}
    waiting, other = len(states), len(states) + 1
    edges, labels = [spans[0].begin_s - trace.period_s], [waiting]
    for span in spans:
        edges += [max(span.begin_s, edges[-1]), max(span.end_s, edges[-1])]
        labels += [other if span.key is None else column[span.key, span.frequency_mhz], waiting]
    edges_s = np.array([*edges, edges[-1] + trace.period_s])
    onehot = np.eye(len(states) + 2)[labels]
    scaled = np.append(unit_clocks([mhz for _, mhz in states]), [0.0, 0.0])
    keys = sorted({key for key, _ in states})
    curves = [np.array([column[state] for state in states if state[0] == key]) for key in keys]
    if window is None:
        window = find_window(trace, Timeline(edges_s, onehot @ parabolas(curves, scaled)))
    exposure = Timeline(edges_s, onehot).exposure(trace, window)
    return window, *regress(exposure, trace.energy_j, curves, scaled)
