"""A pipeline whose true curves are known: 1F1B on GPUs with a slow clock and a slow, noisy energy counter.

Written with numpy alone and apart from the package's simulator, so that the profiler is not judged by its own
model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey, ProfilePoint

FORWARD, BACKWARD = Kind.FORWARD, Kind.BACKWARD


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[tuple[Kind, int]]:
    """Return a stage's instructions in program order."""
    warmup = min(stages - 1 - stage, microbatches)
    order = [(FORWARD, m) for m in range(warmup)]
    for m in range(warmup, microbatches):
        order += [(FORWARD, m), (BACKWARD, m - warmup)]
    return order + [(BACKWARD, m) for m in range(microbatches - warmup, microbatches)]


@dataclass
class TruePipeline:
    """Runs iterations and keeps what the GPUs really drew."""

    curves: Mapping[CurveKey, tuple[ProfilePoint, ...]]
    microbatches: int = 8
    blocking_power_w: float = 83.64
    blocking_slope_w: float = 0.0
    """What waiting at the highest clock draws more than at the lowest."""
    switch_latency_s: float = 0.010
    time_noise: float = 0.005
    tail_s: float = 0.030
    size_spread: float = 0.0
    """Relative standard deviation of the micro-batches' sizes, drawn anew for each iteration."""
    seed: int = 0
    now_s: float = 1000.0
    spans: list[list[Span]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.stages = 1 + max(key.stage for key in self.curves)
        self.orders = [one_f_one_b(s, self.stages, self.microbatches) for s in range(self.stages)]
        self.truth = {
            (k, p.frequency_mhz): (p.time_s, p.energy_j / p.time_s) for k, ps in self.curves.items() for p in ps
        }
        self.spans = [[] for _ in range(self.stages)]
        self.lowest_mhz, self.highest_mhz = min(f for _, f in self.truth), max(f for _, f in self.truth)
        self.power = [([self.now_s], [self.waiting_w(self.highest_mhz)]) for _ in range(self.stages)]
        self.clock = [(self.highest_mhz, 0, -1.0) for _ in range(self.stages)]
        self.begin_s = self.now_s
        self.iterations = 0

    def waiting_w(self, mhz: int) -> float:
        """Return what a GPU draws that waits at a clock: communication kernels spin at it."""
        share = (mhz - self.lowest_mhz) / (self.highest_mhz - self.lowest_mhz)
        return self.blocking_power_w + self.blocking_slope_w * share

    def keys(self, stage: int) -> list[CurveKey]:
        return [CurveKey(stage, kind) for kind, _ in self.orders[stage]]

    def run(self, frequencies: list[tuple[int, ...]]) -> float:
        """Run one iteration; return its time."""
        begin = self.begin_s = self.now_s + self.rng.uniform(0.001, 0.003)
        self.iterations += 1
        self.sizes = np.ones(self.microbatches)
        if self.size_spread:
            self.sizes = self.rng.gamma(self.size_spread**-2, self.size_spread**2, self.microbatches)
        done: dict[tuple[int, Kind, int], float] = {}
        free = [begin] * self.stages
        at = [0] * self.stages
        while any(at[s] < len(self.orders[s]) for s in range(self.stages)):
            for s in range(self.stages):
                while at[s] < len(self.orders[s]):
                    kind, m = self.orders[s][at[s]]
                    needs = (s - 1, kind, m) if kind is FORWARD else (s + 1, kind, m)
                    if 0 <= needs[0] < self.stages and needs not in done:
                        break
                    ready = max(free[s], done.get(needs, begin) + 0.0005)
                    free[s] = self._work(s, kind, m, ready, free[s], frequencies[s][at[s]])
                    done[s, kind, m] = free[s]
                    at[s] += 1
        end = max(free) + self.tail_s
        elapsed, self.now_s = end - self.now_s, end
        return elapsed

    def _work(self, stage: int, kind: Kind, m: int, begin: float, asked_at: float, mhz: int) -> float:
        """Run one instruction, whose clock was asked for at the end of the one before; return its end."""
        key = CurveKey(stage, kind)
        old, new, change = self.clock[stage]
        changes = mhz != (new or old)
        if changes:
            old, new, change = new or old, mhz, asked_at + self.switch_latency_s
        self.clock[stage] = (old, new, change)
        slow = self.rng.normal(1.0, self.time_noise)
        edges, levels = self.power[stage]
        now, left = begin, float(self.sizes[m])
        if new and edges[-1] <= change < begin:
            edges.append(change)
            levels.append(self.waiting_w(new))
        if now < change and new:
            time_s, watts = self.truth[key, old]
            part = min((change - now) / (time_s * slow), left)
            edges.append(now)
            levels.append(watts)
            now, left = now + part * time_s * slow, left - part
        if left > 1e-12:
            time_s, watts = self.truth[key, new or old]
            edges.append(now)
            levels.append(watts)
            now += left * time_s * slow
        edges.append(now)
        levels.append(self.waiting_w(new if new and now >= change else old))
        asked_s = asked_at if changes else -np.inf
        self.spans[stage].append(Span(begin, now, key, mhz, asked_s, batch=(self.iterations, m)))
        return now

    def samples(
        self,
        stage: int,
        period_s: float = 0.1,
        duty: float = 0.25,
        noise: float = 0.03,
        offset: float | Callable[[], float] = 0.0,
        poll_s: float = 0.005,
        average_s: float = 0.0,
        fading_s: float = 0.0,
        warming: float = 0.0,
    ) -> list[tuple[float, float]]:
        """Return what a process that polls this GPU's counter sees.

        Args:
            stage: Whose GPU.
            period_s: Update period.
            duty: Share of the period in which the power is looked at.
            noise: Of each increment.
            offset: From the end of that share to the update.
            poll_s: Time between two polls.
            average_s: The counter sees the average power over this time before.
            fading_s: The counter sees an average that forgets with this time constant.
            warming: The share by which leakage grows within the first minutes.
        """
        edges, levels = (np.array(a) for a in self.power[stage])
        edges = np.append(edges, self.now_s)
        levels = levels * (1.0 + warming * -np.expm1((edges[0] - edges[:-1]) / 60.0))
        if average_s or fading_s:
            edges, levels = averaged(edges, levels, average_s, fading_s)
        energy = np.concatenate([[0.0], np.cumsum(np.diff(edges) * levels)])

        def until(t: float) -> float:
            return float(np.interp(t, edges, energy))

        rng = np.random.default_rng((self.seed, stage))
        seen, counter = [], 5e6
        update = edges[0] + rng.uniform(0, period_s)
        while update < self.now_s:
            end = update - (offset() if callable(offset) else offset) * period_s
            watts = (until(end) - until(end - duty * period_s)) / (duty * period_s)
            counter += watts * period_s * (1 + noise * rng.normal())
            seen.append((np.ceil(update / poll_s) * poll_s + rng.uniform(0, 2e-4), round(counter, 3)))
            update += period_s
        return seen


def averaged(
    edges: np.ndarray, levels: np.ndarray, average_s: float, fading_s: float, step_s: float = 0.0005
) -> tuple[np.ndarray, np.ndarray]:
    """Return a power that an average of it over time follows, in steps of half a millisecond."""
    grid = np.arange(edges[0], edges[-1], step_s)
    energy = np.concatenate([[0.0], np.cumsum(np.diff(edges) * levels)])
    power = np.diff(np.interp(grid, edges, energy)) / step_s
    if average_s:
        window = round(average_s / step_s)
        summed = np.cumsum(np.concatenate([np.full(window, power[0]), power]))
        power = (summed[window:] - summed[:-window]) / window
    if fading_s:
        keep = np.exp(-step_s / fading_s)
        level = power[0]
        for at, now in enumerate(power):
            level = keep * level + (1.0 - keep) * now
            power[at] = level
    return grid, power
