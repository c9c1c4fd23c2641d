"""Experiment: the whole loop, from profile to plan to enforcement, on asynchronous streams.

Forwards and backwards run at the speed of a clock that is not the GPU's own, and that comes late, as the GPU's does. So
clocks can be planned and enforced without setting any. Recorder, timer, sweep, solver and controller are the real ones.
The energies are a stated law's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.config import ProfilingConfig
from perseus_ds.frontier import Plan, solve
from perseus_ds.frontier.observed import observed_problem
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.pipeline.clocks import USUAL_JITTER, IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import RecordedIteration, Recorder
from perseus_ds.profiling.request_cost import request_stall_s
from perseus_ds.profiling.spans import changes, segments, settled_durations
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint
from perseus_ds.profiling.times import instruction_times
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.runtime.measurement import Measurements
from perseus_ds.silicon.lab import Asked, Clocked, Event, Lab
from perseus_ds.silicon.outcome import Limit, Outcome, judged, percentile

__all__ = ["Loop", "judge", "measure", "shares", "whole_loop"]

NAME = "whole loop"
_MICROBATCHES = 6
_KINDS = (Kind.FORWARD, Kind.BACKWARD)
_ORDER = [CurveKey(0, kind) for _ in range(_MICROBATCHES) for kind in _KINDS]
_WARMUP, _BASELINE, _LEARNING, _ENFORCED = 1, 3, 2, 8
_SLOWER = 1.1
_WAITING_W, _BUSY_W = 100.0, 500.0
_OFF, _SHARE = 0.01, 0.95


@dataclass(frozen=True)
class Loop:
    """What came of it.

    Attributes:
        plan: The plan.
        times_s: Iteration times under it.
        shares: Of each instruction's time after its clock was there, the part at that clock.
        late_s: How long after an instruction's begin its clock was there; 0: in time.
        profiled: Iterations that the profile took.
    """

    plan: Plan
    times_s: tuple[float, ...]
    shares: tuple[float, ...]
    late_s: tuple[float, ...]
    profiled: int


def whole_loop(lab: Lab) -> Outcome:
    """Profile, plan, enforce, and judge."""
    return judge(measure(lab))


def judge(loop: Loop) -> Outcome:
    """Judge whether the iterations were as planned."""
    time_s = statistics.median(loop.times_s)
    off, least = time_s / loop.plan.time_s - 1.0, min(loop.shares, default=0.0)
    figures = {
        "profiled_iterations": loop.profiled,
        "switches_per_iteration": loop.plan.switches,
        "predicted_ms": loop.plan.time_s * 1e3,
        "measured_ms": time_s * 1e3,
        "off_percent": off * 100.0,
        "least_share_at_clock": least,
        "clock_late_p50_ms": percentile(loop.late_s, 50) * 1e3,
        "clock_late_p99_ms": percentile(loop.late_s, 99) * 1e3,
    }
    return judged(
        NAME,
        figures,
        Limit(loop.plan.switches >= _MICROBATCHES, f"the plan has {loop.plan.switches} switches: too few to tell"),
        Limit(abs(off) < _OFF, f"iterations took {off:+.1%} over the prediction, limit 1 %"),
        Limit(least >= _SHARE, f"an instruction ran {least:.1%} of its time at its clock, limit 95 %"),
    )


def measure(lab: Lab) -> Loop:
    """Run baseline, sweep and plan one after the other."""
    clocked = lab.clocked()
    job = _Job(lab, clocked)
    highest = IterationClocks(clocked.clocks_mhz[0])
    baseline = [job.run(highest) for _ in range(_WARMUP + _BASELINE)][_WARMUP:]
    sweep = Sweep(_ORDER, clocked.clocks_mhz, ProfilingConfig(), _slowest_s(clocked), 1.0)
    while not sweep.done:
        mhz = sweep.next_frequencies()
        job.run(IterationClocks(mhz[-1], mhz))
    job.collect_all()
    plan = _plan(job.measurements, baseline, clocked)
    planned_mhz = tuple(plan.frequency_mhz.values())
    clocks = IterationClocks(highest.beyond_mhz, planned_mhz)
    enforced = [job.run(clocks) for _ in range(_LEARNING + _ENFORCED)][_LEARNING:]
    job.run(clocks)  # its begin is the end of the last one
    job.collect_all()
    job.timer.close()
    log = clocked.close()
    found = [shares(job.recorded[number], log) for number in enforced]
    return Loop(
        plan,
        tuple(job.measurements.time_s(number) for number in enforced),
        tuple(share for one in found for share, _ in one),
        tuple(late_s for one in found for _, late_s in one),
        sweep.iterations,
    )


def shares(iteration: RecordedIteration, log: Sequence[Asked]) -> list[tuple[float, float]]:
    """Return for each instruction the share of its time at its clock once that was there, and how late it was.

    Args:
        iteration: The instructions.
        log: When each clock was there, in order.
    """
    found = []
    for timed in iteration.instructions:
        begin_s, end_s = iteration.begin_s + timed.begin_s, iteration.begin_s + timed.end_s
        pieces = _pieces(log, begin_s, end_s)
        there_s = next((at_s for mhz, at_s, _ in pieces if mhz == timed.frequency_mhz), end_s)
        at_clock_s = sum(until_s - at_s for mhz, at_s, until_s in pieces if mhz == timed.frequency_mhz)
        left_s = end_s - there_s
        found.append((at_clock_s / left_s if left_s > 0 else 0.0, there_s - begin_s))
    return found


def _pieces(log: Sequence[Asked], begin_s: float, end_s: float) -> list[tuple[int, float, float]]:
    """Return the clocks between two times: MHz, from, until."""
    found = []
    for number, asked in enumerate(log):
        until_s = log[number + 1].at_s if number + 1 < len(log) else end_s
        first_s, last_s = max(begin_s, asked.at_s), min(end_s, until_s)
        if last_s > first_s:
            found.append((asked.mhz, first_s, last_s))
    return found


class _Job:
    """One stage whose host is one iteration ahead of the device."""

    def __init__(self, lab: Lab, clocked: Clocked) -> None:
        self._lab, self._clocked = lab, clocked
        self.timer = lab.timer()
        frequencies = FrequencyController(clocked.set_mhz, clocked.latency_s, lab.now_s)
        self._recorder = Recorder(
            self.timer, frequencies.begin, frequencies.instruction_ended, frequencies.instruction_began
        )
        self.measurements = Measurements()
        self.recorded: dict[int, RecordedIteration] = {}
        self._count = 0
        self._before: Event | None = None

    def run(self, clocks: IterationClocks) -> int:
        """Enqueue an iteration and return its number."""
        number = self._count
        self._count += 1
        self._recorder.iteration_begin(clocks, number, self.measurements.expected_begins_s(clocks))
        for microbatch in range(_MICROBATCHES):
            for kind in _KINDS:
                operation = Operation(kind, microbatch)
                self._recorder.operation_begin(operation)
                self._clocked.run(kind)
                self._recorder.operation_end(operation)
        self._recorder.iteration_end()
        event = self._lab.event()
        event.record()
        if self._before is not None:
            self._before.synchronize()
        self._before = event
        self._collect()
        return number

    def collect_all(self) -> None:
        """Wait for the device and read everything."""
        self._lab.synchronize()
        self._collect()

    def _collect(self) -> None:
        for one in self._recorder.finished():
            self.measurements.recorded(one)
            self.recorded[one.iteration] = one
            if before := self.recorded.get(one.iteration - 1):
                self.measurements.lasted(before.iteration, before.begin_s, one.begin_s)


def _plan(measurements: Measurements, baseline: Sequence[int], clocked: Clocked) -> Plan:
    """Return the plan that the measured times call for."""
    slowest_s = _slowest_s(clocked)
    spans = measurements.work(_WARMUP, stage=0).spans()
    changed = changes(spans, slowest_s)
    points, _ = instruction_times(settled_durations(segments(spans, changed)))
    top_mhz = clocked.clocks_mhz[0]
    curves = {key: tuple(_with_energy(point, top_mhz) for point in row) for key, row in points.items()}
    profile = Profile(curves, NAME, request_stall_s=request_stall_s(spans, changed, points) or 0.0)
    problem = observed_problem([measurements.trace(baseline, 0, 0)], profile, _WAITING_W, 1)
    frontier = solve(problem)
    return on_time_plan(frontier, frontier.clamp(_SLOWER * frontier.t_min_s), USUAL_JITTER * slowest_s)


def _with_energy(point: ProfilePoint, top_mhz: int) -> ProfilePoint:
    """Return a point with the law's energy."""
    power_w = _WAITING_W + _BUSY_W * (point.frequency_mhz / top_mhz) ** 3
    return point._replace(energy_j=power_w * point.time_s)


def _slowest_s(clocked: Clocked) -> float:
    return max(clocked.latency_s(mhz) for mhz in clocked.clocks_mhz)
