"""Experiment: what does the whole of a rank that observes add to a step? Time, waits, memory, or another loss.

Steps with and without it take turns by chance, none of them begins synchronised, and the device's own stamps time them.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime.session import RankSession
from perseus_ds.silicon.lab import Lab, Network
from perseus_ds.silicon.lone_session import observing
from perseus_ds.silicon.outcome import Limit, Outcome, judged

__all__ = ["Cost", "cost", "growth_blocks", "judge", "overhead", "step"]

NAME = "overhead"
_KERNELS = (100, 1000)
_PAIRS, _TOGETHER = 300, 10
_MICROBATCHES = 4
_WATCHED, _LOSSES, _ITERATIONS = 20, 20, 2000
_LIMIT, _FLAT_BLOCKS = 0.002, 2000
_ONE_SIDED = 1.645


@dataclass(frozen=True)
class Cost:
    """What a rank that observes adds to a step.

    Attributes:
        plain_s: Times of steps without it.
        added_s: By how much longer the step with it took, in each pair.
        waits: Times that the trainer's thread waited for the device in some steps, without it and with it.
        same_losses: Whether all losses are the same, bit for bit.
    """

    plain_s: tuple[float, ...]
    added_s: tuple[float, ...]
    waits: tuple[int, int]
    same_losses: bool

    @property
    def bound(self) -> float:
        """Upper bound of the added share of a step, at 95 %."""
        error_s = statistics.stdev(self.added_s) / len(self.added_s) ** 0.5
        return (statistics.mean(self.added_s) + _ONE_SIDED * error_s) / statistics.median(self.plain_s)


def overhead(lab: Lab) -> Outcome:
    """Measure steps of both sizes, let many run, and judge."""
    with tempfile.TemporaryDirectory() as directory, observing(lab, Path(directory)) as session:
        costs = {kernels: cost(lab, session, kernels) for kernels in _KERNELS}
        grown = growth_blocks(lab, session)
    return judge(costs, grown)


def step(network: Network, kernels: int, session: RankSession | None) -> None:
    """Enqueue one step: forwards and backwards of some micro-batches, reported as the hooks report them."""
    if session is not None:
        session.iteration_begin(_MICROBATCHES, training=True)
    for microbatch in range(_MICROBATCHES):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            operation = Operation(kind, microbatch)
            if session is not None:
                session.operation_begin(operation)
            network.run(kernels // (2 * _MICROBATCHES))
            if session is not None:
                session.operation_end(operation)
    if session is not None:
        session.iteration_end()


def cost(lab: Lab, session: RankSession, kernels: int) -> Cost:
    """Measure what a session adds to steps of so many kernels."""
    network, chance = lab.network(), np.random.default_rng(3)
    times_s: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_PAIRS // _TOGETHER):
        order = [hooked for _ in range(_TOGETHER) for hooked in chance.permutation([False, True]).tolist()]
        step(network, kernels, session)  # fills the stream: the first one is not timed
        stamps = [lab.stamp()]
        for hooked in order:
            step(network, kernels, session if hooked else None)
            stamps.append(lab.stamp())
        lab.synchronize()
        for hooked, took_s in zip(order, np.diff(lab.device_s(stamps)).tolist(), strict=True):
            times_s[hooked].append(took_s)

    def some(hooked: bool) -> None:
        for _ in range(_WATCHED):
            step(network, kernels, session if hooked else None)

    waits = (lab.count_waits(lambda: some(False)), lab.count_waits(lambda: some(True)))
    same = _losses(lab, kernels, None) == _losses(lab, kernels, session)
    added_s = tuple(b - a for a, b in zip(times_s[False], times_s[True], strict=True))
    return Cost(tuple(times_s[False]), added_s, waits, same)


def _losses(lab: Lab, kernels: int, session: RankSession | None) -> list[bytes]:
    """Return the losses of some steps of a new network."""
    network = lab.network()
    losses = []
    for _ in range(_LOSSES):
        step(network, kernels, session)
        losses.append(network.loss())
    return losses


def growth_blocks(lab: Lab, session: RankSession) -> int:
    """Return by how many blocks Python's memory grows from the middle to the end of many iterations."""
    network = lab.network()
    blocks = []
    for iteration in range(_ITERATIONS + 1):
        if iteration % _TOGETHER == 0:
            lab.synchronize()
        step(network, 2 * _MICROBATCHES, session)  # takes in those before
        if iteration in (_ITERATIONS // 2, _ITERATIONS):
            gc.collect()  # what is not used any more is no growth
            blocks.append(sys.getallocatedblocks())
    return blocks[1] - blocks[0]


def judge(costs: dict[int, Cost], grown_blocks: int) -> Outcome:
    """Judge.

    Args:
        costs: By kernels of a step.
        grown_blocks: Memory that was not there a thousand iterations before.
    """
    figures: dict[str, float | str] = {"memory_growth_blocks": grown_blocks}
    limits = [Limit(grown_blocks < _FLAT_BLOCKS, f"memory grew by {grown_blocks} blocks in 1,000 iterations")]
    for kernels, one in costs.items():
        added = one.waits[1] - one.waits[0]
        figures |= {
            f"step_of_{kernels}_ms": statistics.median(one.plain_s) * 1e3,
            f"added_to_{kernels}_percent": statistics.mean(one.added_s) / statistics.median(one.plain_s) * 100.0,
            f"upper_bound_{kernels}_percent": one.bound * 100.0,
            f"waits_added_to_{kernels}": added,
        }
        limits += [
            Limit(one.bound < _LIMIT, f"a step of {kernels} kernels may take {one.bound:.2%} longer, limit 0.2 %"),
            Limit(added <= 0, f"{added} waits were added to {_WATCHED} steps of {kernels} kernels"),
            Limit(one.same_losses, f"losses of steps of {kernels} kernels differ"),
        ]
    return judged(NAME, figures, *limits)
