"""The truth about virtual GPUs. Only reports that compare it with measurements read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perseus_ds.profiling.table import CurveKey
from perseus_ds.simulator.state import MAX_EARLY, MAX_ITEMS, MAX_ITERATIONS, GpuState, TruthState, state_paths
from perseus_ds.simulator.stream import Card, Item

__all__ = ["Begin", "Cost", "Truth", "read_truth"]


class Begin(NamedTuple):
    """The begin of an iteration on one virtual GPU.

    Attributes:
        time_s: On ``time.monotonic()``.
        energy_j: That the GPU has drawn so far.
        warmth: Its power over that of a cold GPU doing the same.
    """

    time_s: float
    energy_j: float
    warmth: float


class Cost(NamedTuple):
    """What a curve's instructions at one clock took.

    Attributes:
        instances: Number of instructions.
        time_s: Mean time.
        energy_j: Mean energy.
    """

    instances: float
    time_s: float
    energy_j: float


@dataclass(frozen=True)
class Truth:
    """The truth about one virtual GPU.

    Attributes:
        index: Its number in the directory: by pipeline, then stage, then tensor rank.
        begins: Of each iteration.
        instructions: By curve and clock in MHz: the one asked for, or that a hot GPU is held at. Those that the power
            limit held ran at another clock and are left out. Energies are of a cold GPU; warm ones draw more. Longer
            ones beside the gradient reduction are left out: plans have an extra time for them. So are those of a GPU
            that something slows down at all clocks, and those under which it stood still for a request.
        highest: At the highest clock asked for, by iteration and curve, with those that the power limit held, once that
            clock has stayed for an iteration: at the limit, what a GPU did before and how warm it is decide what it
            draws. Energies are as drawn. Of early iterations only.
        host_ahead: Largest lead of the host in the latest few hundred instructions.
    """

    index: int
    begins: Mapping[int, Begin]
    instructions: Mapping[tuple[CurveKey, int], Cost]
    highest: Mapping[int, Mapping[CurveKey, Cost]]
    host_ahead: int


def read_truth(directory: Path, iterations: Iterable[int]) -> list[Truth]:
    """Read the truth about all GPUs of a state directory.

    Args:
        directory: Of the state files.
        iterations: Iterations of interest; only the last few thousand are stored.

    Raises:
        ValueError: A state file is of another version.
    """
    wanted = list(iterations)
    return [_truth(Card(path), wanted) for path in state_paths(directory)]


def _truth(card: Card, iterations: list[int]) -> Truth:
    state: GpuState = card.file.state
    with card.file.locked() as gpu:
        card.refresh(gpu)
        newest = max(iterations, default=0)
        begins = {
            number: Begin(*state.iterations[number % MAX_ITERATIONS])
            for number in iterations
            if number > newest - MAX_ITERATIONS
        }
        instructions = {
            (key, mhz): _mean(one)
            for key, row in card.rows.items()
            for mhz, one in zip(card.spec.clocks_mhz, state.truth[row], strict=False)
            if one.count
        }
        highest = {
            number: {key: _mean(early[row]) for key, row in card.rows.items() if early[row].count}
            for number in iterations
            if number < MAX_EARLY
            for early in [state.highest_truth[number]]
        }
    known = {number: begin for number, begin in begins.items() if begin.time_s > 0.0}
    return Truth(state.constants.index, known, instructions, highest, _host_ahead(state))


def _mean(one: TruthState) -> Cost:
    count, time_s, energy_j = map(float, (one.count, one.time_s, one.energy_j))
    return Cost(count, time_s / count, energy_j / count)


def _host_ahead(state: GpuState) -> int:
    """Return the largest lead of the host over the GPU, in instructions."""
    head = state.dynamic.head
    slots = [number % MAX_ITEMS for number in range(max(0, state.tail - MAX_ITEMS // 2), head)]
    works = [slot for slot in slots if state.items[slot].kind == Item.WORK]
    ahead, over = 0, 0
    for index, slot in enumerate(works):
        while over < index and state.ended_s[works[over]] <= state.items[slot].stamp_s:
            over += 1
        ahead = max(ahead, index - over)
    return ahead
