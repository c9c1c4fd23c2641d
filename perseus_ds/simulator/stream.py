"""The streams of virtual GPUs. Items run in order; a transfer ends after both sides have reached it.

Nothing runs by itself. Each reader brings a GPU to the present, together with the GPUs that it waits for. Every
stream is in order and waits only for named transfers, so the result does not depend on the readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey
from perseus_ds.simulator.nature import CONSTANTS, GpuSpec
from perseus_ds.simulator.physics import Curve, advance, clock_without_limit, effective_clock, stop_work, warmth
from perseus_ds.simulator.state import (
    MAX_EARLY,
    MAX_ITEMS,
    MAX_ITERATIONS,
    RECENT,
    ChannelState,
    GpuDynamic,
    GpuState,
    ItemState,
    StateFile,
    state_path,
)

__all__ = ["HOST_OVERHEAD_S", "Card", "Item", "Moment", "spec_of"]

HOST_OVERHEAD_S = 50e-6
"""From the end of a synchronisation to the first item that the host enqueues after it."""

_KINDS = tuple(Kind)


class Item(IntEnum):
    """The kinds of items in a stream."""

    MARK = 0  # an event
    WORK = 1  # an instruction
    POST = 2  # this side of a transfer
    WAIT = 3  # until a transfer is over
    SYNCHRONIZE = 4  # the host waits here
    ITERATION = 5  # a training iteration begins


def spec_of(state: GpuState) -> GpuSpec:
    """Read a GPU's description from its state."""
    constants = state.constants
    return GpuSpec(
        tuple(constants.clocks_mhz[: constants.clock_count]),
        seed=constants.seed,
        **{name: getattr(constants.nature, name) for name in CONSTANTS},
    )


class Card:
    """One process's view of one virtual GPU.

    Attributes:
        file: Its state file.
        spec: Clocks, seed and physics.
        curves: By row.
        rows: Row of each curve.
    """

    def __init__(self, path: Path) -> None:
        """Open a GPU's state file; see ``StateFile`` for the errors."""
        self.path = path
        self.file = StateFile(path)
        self.spec = spec_of(self.file.state)
        self.curves: list[Curve] = []
        self.rows: dict[CurveKey, int] = {}
        self._generation = -1
        self._peers: dict[int, Card] = {}

    def refresh(self, gpu: GpuDynamic) -> None:
        """Read changed curves again."""
        if gpu.curves_generation == self._generation:
            return
        state, clocks = self.file.state, len(self.spec.clocks_mhz)
        self.curves = [[tuple(point) for point in state.table[row][:clocks]] for row in range(gpu.curve_count)]
        keys = (state.keys[row] for row in range(gpu.curve_count))
        self.rows = {
            CurveKey(key.stage, _KINDS[key.kind], key.chunk, key.backward_chunk): row for row, key in enumerate(keys)
        }
        self._generation = gpu.curves_generation

    def peer(self, index: int) -> Card | None:
        """Return another GPU of the same directory; None until it exists."""
        if index not in self._peers:
            try:
                self._peers[index] = Card(state_path(self.path.parent, index))
            except FileNotFoundError:
                return None
        return self._peers[index]


class Moment:
    """Copies of the states of a GPU and of those that it waits for, advanced together.

    Args:
        card: The GPU.
        gpu: Copy of its state, changed in place.
        real: Whether to keep the result; False: a forecast.
    """

    def __init__(self, card: Card, gpu: GpuDynamic, real: bool = True) -> None:
        self._card = card
        self._real = real
        self._mine = card.file.state.constants.index
        self._gpus = {self._mine: gpu}
        self._cards = {self._mine: card}
        self._busy: set[int] = set()

    def advance(self, until_s: float) -> None:
        """Advance the GPU to a time."""
        self._run(self._mine, until_s)

    def write_peers(self) -> None:
        """Store the new states of the peers."""
        for index, gpu in self._gpus.items():
            if index != self._mine:
                self._cards[index].file.write(gpu)

    def forecast_s(self, number: int) -> float:
        """Return the end time of item ``number`` if nothing else happens; infinite while unknown."""
        future = Moment(self._card, GpuDynamic.from_buffer_copy(self._gpus[self._mine]), real=False)
        future._cards = dict(self._cards)
        future._gpus.update(
            (index, GpuDynamic.from_buffer_copy(gpu)) for index, gpu in self._gpus.items() if index != self._mine
        )
        gpu = future._gpus[self._mine]
        future._run(self._mine, math.inf, lambda: gpu.head > number)
        return gpu.time_s if gpu.head > number else math.inf

    def _run(self, index: int, until_s: float, over: Callable[[], bool] = lambda: False) -> None:
        """Advance one GPU to a time, until ``over`` holds, or until its future is unknown."""
        if index in self._busy:
            return
        card, gpu = self._cards[index], self._gpus[index]
        self._busy.add(index)
        try:
            while gpu.time_s < until_s and not over():
                if not self._step(card, gpu, until_s):
                    break
        finally:
            self._busy.discard(index)

    def _step(self, card: Card, gpu: GpuDynamic, until_s: float) -> bool:
        """Advance to the next event; return whether there is one."""
        if gpu.curve >= 0 and gpu.remaining > 0.0:
            advance(gpu, card.spec, card.curves, until_s, to_work_end=True)
            return True
        if gpu.working:
            gpu.working = 0
            if self._real:
                _note_truth(card, gpu)
            stop_work(gpu)
            self._over(card, gpu)
            return True
        if gpu.head >= card.file.state.tail:
            return _wait(card, gpu, until_s)
        item = card.file.state.items[gpu.head % MAX_ITEMS]
        ready_s = self._ready_s(card, gpu, item, until_s)
        if ready_s > gpu.time_s:
            return _wait(card, gpu, min(ready_s, until_s))
        self._begin(card, gpu, item)
        return True

    def _ready_s(self, card: Card, gpu: GpuDynamic, item: ItemState, until_s: float) -> float:
        """Return the earliest start time of an item; infinite while unknown."""
        gpu.host_s = max(gpu.host_s, item.stamp_s)
        if item.kind not in (Item.POST, Item.WAIT):
            return gpu.host_s
        ready_s = max(gpu.host_s, gpu.stalled_until_s)
        if item.kind == Item.WAIT and ready_s <= gpu.time_s:
            mine = gpu.channels[item.channel]
            theirs_s = self._posted_s(card, mine.peer, mine.label ^ 1, item.number, until_s)
            done_s = max(_time_of(mine, item.number, gpu.time_s), theirs_s)
            if item.curve >= 0:
                done_s += card.curves[item.curve][effective_clock(gpu)][0]
            ready_s = max(ready_s, done_s)
        return ready_s

    def _posted_s(self, card: Card, index: int, label: int, number: int, until_s: float) -> float:
        """Return the time when another GPU posted its side of a transfer; infinite until then."""
        peer = card.peer(index)
        if peer is None:
            return math.inf
        if index not in self._gpus:
            self._gpus[index] = GpuDynamic.from_buffer_copy(peer.file.state.dynamic)
            self._cards[index] = peer
            peer.refresh(self._gpus[index])
        gpu = self._gpus[index]
        self._run(index, until_s, lambda: _posted(gpu, self._mine_of(card), label, number) is not None)
        channel = _posted(gpu, self._mine_of(card), label, number)
        if channel is not None:
            return _time_of(channel, number, gpu.time_s)
        return -math.inf if gpu.gone and gpu.head >= peer.file.state.tail else math.inf

    @staticmethod
    def _mine_of(card: Card) -> int:
        return card.file.state.constants.index

    def _begin(self, card: Card, gpu: GpuDynamic, item: ItemState) -> None:
        """Begin an item."""
        if item.kind == Item.WORK:
            gpu.curve, gpu.remaining, gpu.factor, gpu.working = item.curve, item.size, item.factor, 1
            gpu.begin_s, gpu.begin_j, gpu.begin_clock = gpu.time_s, gpu.energy_j, clock_without_limit(gpu)
            gpu.limited = 0
            return
        if item.kind == Item.POST:
            channel = gpu.channels[item.channel]
            channel.posted = item.number
            channel.numbers[item.number % RECENT] = item.number
            channel.times_s[item.number % RECENT] = gpu.time_s
        elif item.kind == Item.SYNCHRONIZE:
            gpu.host_s = max(gpu.host_s, gpu.time_s) + HOST_OVERHEAD_S
        elif item.kind == Item.ITERATION:
            gpu.unchanged += 1
            gpu.iteration = item.number
            if self._real:
                begun = gpu.time_s, gpu.energy_j, warmth(gpu, card.spec)
                card.file.state.iterations[item.number % MAX_ITERATIONS][:] = begun
        self._over(card, gpu)

    def _over(self, card: Card, gpu: GpuDynamic) -> None:
        """End the item at the stream's head."""
        if self._real:
            card.file.state.ended_s[gpu.head % MAX_ITEMS] = gpu.time_s
        gpu.head += 1


def _wait(card: Card, gpu: GpuDynamic, until_s: float) -> bool:
    """Advance over an idle time; return False if its end is unknown."""
    if until_s == math.inf:
        return False
    advance(gpu, card.spec, card.curves, until_s)
    return True


def _posted(gpu: GpuDynamic, peer: int, label: int, number: int) -> ChannelState | None:
    """Return the channel to ``peer`` if the GPU has reached its transfer ``number``."""
    for index in range(gpu.channel_count):
        channel = gpu.channels[index]
        if channel.peer == peer and channel.label == label:
            return channel if channel.posted >= number else None
    return None


def _time_of(channel: ChannelState, number: int, otherwise_s: float) -> float:
    """Return the time when a transfer was posted; for a skipped one, as after an exception, some later time."""
    slot = number % RECENT
    return channel.times_s[slot] if channel.numbers[slot] == number else otherwise_s


def _note_truth(card: Card, gpu: GpuDynamic) -> None:
    """Record the true cost of an instruction, unless its clock has changed or something else slows it down."""
    if gpu.begin_clock < 0 or gpu.factor != 1.0 or gpu.stalled_until_s > gpu.begin_s:
        return
    state: GpuState = card.file.state
    lasted_s, drawn_j = gpu.time_s - gpu.begin_s, gpu.energy_j - gpu.begin_j
    if not gpu.limited:
        state.truth[gpu.curve][gpu.begin_clock].add(lasted_s, drawn_j / warmth(gpu, card.spec))
    if gpu.unchanged > 1 and gpu.begin_clock == 0 and gpu.iteration < MAX_EARLY:
        state.highest_truth[gpu.iteration][gpu.curve].add(lasted_s, drawn_j)
