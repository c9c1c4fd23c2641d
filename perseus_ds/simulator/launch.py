"""The host's side of a virtual GPU's stream: enqueue and continue, wait for events, synchronise.

Only the trainer's process enqueues, from one thread. The host resumes slightly before the end of a wait, so its real
work falls into the GPU's time. The next item then starts at the end of the wait, not at the wall clock's time.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque

from perseus_ds.profiling.table import CurveKey
from perseus_ds.simulator.gpu import VirtualGpu
from perseus_ds.simulator.state import MAX_CHANNELS, MAX_ITEMS
from perseus_ds.simulator.stream import Item

__all__ = ["VirtualEvent", "VirtualStream"]

_EXACT_S = 0.0001  # as much as sleeping takes too long
_STEP_S = 0.002  # how often somebody looks who cannot tell how long it will take
_PATIENCE_S = 600.0
_DEAD_CHECK_S = 0.5


class VirtualStream:
    """The stream of one virtual GPU.

    Args:
        gpu: The GPU. From now on this process enqueues on it.
        launch_queue: Largest lead of the host over the GPU, in instructions; 0: no lead.
        host_lead_s: The host resumes this long before the end of a wait.
    """

    def __init__(self, gpu: VirtualGpu, launch_queue: int = 0, host_lead_s: float = 0.0) -> None:
        self._gpu = gpu
        self._state = gpu.card.file.state
        self._launch_queue = launch_queue
        self._host_lead_s = host_lead_s
        self._channels: dict[tuple[int, int], int] = {}
        self._posted: dict[int, int] = {}
        self._pass = 0
        self._works: deque[int] = deque()
        self._open()

    # -- what is enqueued ---------------------------------------------------------------------------------

    def mark(self) -> int:
        """Enqueue an event and return its number."""
        return self._enqueue(Item.MARK)

    def work(self, key: CurveKey, factor: float = 1.0, size: float = 1.0) -> None:
        """Enqueue an instruction.

        Args:
            key: Its curve.
            factor: Factor on its time; the GPU waits in what is added.
            size: Factor on its work: on time and energy alike.

        Raises:
            KeyError: The GPU has no such curve.
        """
        self._works.append(self._enqueue(Item.WORK, curve=self._gpu.card.rows[key], factor=factor, size=size))

    def post(self, peer: int, label: int) -> tuple[int, int]:
        """Enqueue this side of the next transfer with another GPU.

        Args:
            peer: Its index.
            label: Content; the other side's label is this one with its last bit flipped.

        Returns:
            The argument for ``wait``.
        """
        channel = self._channels.get((peer, label))
        if channel is None:
            channel = self._channels[peer, label] = self._new_channel(peer, label)
        number = self._posted[channel] = self._posted.get(channel, self._pass << 20) + 1
        self._enqueue(Item.POST, channel=channel, number=number)
        return channel, number

    def wait(self, posted: tuple[int, int], key: CurveKey | None = None) -> None:
        """Enqueue a wait for a transfer. It takes the time of the curve of ``key``; None: no time."""
        channel, number = posted
        curve = -1 if key is None else self._gpu.card.rows[key]
        self._enqueue(Item.WAIT, channel=channel, number=number, curve=curve)

    def begin_pass(self, iteration: int | None) -> None:
        """A schedule begins: restart the count of transfers, so an aborted pass does not affect the next one.

        Args:
            iteration: Number of the training iteration; None: an evaluation.
        """
        self._pass += 1
        self._posted.clear()
        if iteration is not None:
            self._enqueue(Item.ITERATION, number=iteration)

    def _new_channel(self, peer: int, label: int) -> int:
        with self._gpu.moment() as (_, dynamic):
            index = dynamic.channel_count
            if index == MAX_CHANNELS:
                raise ValueError(f"more than {MAX_CHANNELS} channels")
            dynamic.channels[index].peer, dynamic.channels[index].label = peer, label
            dynamic.channel_count = index + 1
        return index

    def _enqueue(
        self,
        kind: Item,
        curve: int = -1,
        factor: float = 1.0,
        size: float = 1.0,
        channel: int = -1,
        number: int = 0,
    ) -> int:
        """Append an item and return its number in the stream; the tail advances only once the item is complete."""
        if self._closed:
            self._open()
        tail = self._state.tail
        while tail - self._state.dynamic.head >= MAX_ITEMS // 2:
            self._sleep_until(tail - MAX_ITEMS // 4, self._host_lead_s)
        item = self._state.items[tail % MAX_ITEMS]
        item.kind, item.curve, item.factor, item.size = kind, curve, factor, size
        item.channel, item.number = channel, number
        item.stamp_s = self._gpu.now()
        self._state.tail = tail + 1
        return tail

    # -- what the host waits for --------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for all enqueued items."""
        self._sleep_until(self._enqueue(Item.SYNCHRONIZE), self._host_lead_s)
        self._works.clear()

    def instruction_enqueued(self) -> None:
        """Wait while the launch queue is full."""
        if not self._launch_queue:
            self.synchronize()
        elif len(self._works) > self._launch_queue:
            self._sleep_until(self._works.popleft(), self._host_lead_s)

    def is_over(self, number: int) -> bool:
        """Return whether an item is over."""
        if self._state.dynamic.head > number:  # no need for the lock
            return True
        with self._gpu.moment() as (_, dynamic):
            return dynamic.head > number

    def ended_s(self, number: int) -> float:
        """Return the end time of an item, on ``time.monotonic()``."""
        return self._state.ended_s[number % MAX_ITEMS]

    def wait_until_over(self, number: int) -> None:
        """Wait for the end of an item."""
        while not self.is_over(number):  # sleeping ends a little early
            self._sleep_until(number, 0.0)

    def close(self) -> None:
        """Enqueue nothing more, or not for a while: no GPU needs to wait for this one's transfers."""
        self._closed = True
        with self._gpu.moment() as (_, dynamic):
            dynamic.gone = 1

    def _open(self) -> None:
        self._closed = False
        with self._gpu.moment() as (_, dynamic):
            dynamic.owner, dynamic.gone = os.getpid(), 0

    def _sleep_until(self, number: int, lead_s: float) -> None:
        """Sleep until ``lead_s`` before the end of an item, at any changes of the GPU's clock.

        Raises:
            TimeoutError: A live process's GPU has not reached a transfer for ten minutes.
        """
        begin_s = checked_s = time.monotonic()
        while self._state.dynamic.head <= number:
            left_s = self._left_s(number) - lead_s
            if left_s <= _EXACT_S:
                return
            # A clock that rises meanwhile may halve what is left, and no more.
            time.sleep(min(left_s - _EXACT_S, max(left_s / 2, _STEP_S)) if left_s < math.inf else _STEP_S)
            now_s = time.monotonic()
            if left_s == math.inf and now_s - checked_s > _DEAD_CHECK_S:
                checked_s = now_s
                self._bury_the_dead()
                if now_s - begin_s > _PATIENCE_S:
                    raise TimeoutError("a transfer was posted on one virtual GPU only")

    def _left_s(self, number: int) -> float:
        """Return the remaining time of an item if nothing else happens."""
        with self._gpu.moment() as (moment, dynamic):
            if dynamic.head > number:
                return 0.0
            return moment.forecast_s(number) - dynamic.time_s

    def _bury_the_dead(self) -> None:
        """Mark the GPUs with dead processes among those that this one has transfers with."""
        for peer, _ in self._channels:
            card = self._gpu.card.peer(peer)
            if card is None or card.file.state.dynamic.gone:
                continue
            try:
                os.kill(card.file.state.dynamic.owner, 0)
            except ProcessLookupError:
                with card.file.locked() as dynamic:
                    dynamic.gone = 1


class VirtualEvent:
    """The virtual counterpart of ``torch.cuda.Event``.

    Args:
        stream: ``record`` enqueues it there.
    """

    __slots__ = ("_number", "_stream")

    def __init__(self, stream: VirtualStream) -> None:
        self._stream = stream
        self._number = -1

    def record(self) -> None:
        """Enqueue it."""
        self._number = self._stream.mark()

    def query(self) -> bool:
        """Return whether the GPU has reached it."""
        return self._stream.is_over(self._number)

    def synchronize(self) -> None:
        """Wait until the GPU has reached it."""
        self._stream.wait_until_over(self._number)

    def elapsed_time(self, later: VirtualEvent) -> float:
        """Return the ms from this event to another; the GPU has reached both."""
        return (self._stream.ended_s(later._number) - self._stream.ended_s(self._number)) * 1e3
