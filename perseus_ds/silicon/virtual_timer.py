"""Stream, events and timer in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.timers import CudaTimer
from perseus_ds.simulator.launch import VirtualEvent, VirtualStream
from perseus_ds.simulator.stream import Item

if TYPE_CHECKING:
    from perseus_ds.silicon.virtual_lab import VirtualLab

__all__ = ["LabEvent", "LabStream", "VirtualTimer"]


class LabStream(VirtualStream):
    """A stream of which the lab alone says when the host waits."""

    def work(self, key: CurveKey, factor: float = 1.0, size: float = 1.0) -> None:
        """Enqueue an instruction, and do not keep in mind that there is one more."""
        self._enqueue(Item.WORK, curve=self._gpu.card.rows[key], factor=factor, size=size)


class LabEvent(VirtualEvent):
    """An event whose waits let virtual time pass."""

    __slots__ = ("_lab",)

    def __init__(self, lab: VirtualLab) -> None:
        super().__init__(lab.stream)
        self._lab = lab

    @property
    def number(self) -> int:
        """Its place in the stream."""
        return self._number

    def synchronize(self) -> None:
        """Wait until the GPU has reached it."""
        self._lab.waits += 1
        self._lab.wait_for(self._number)

    def elapsed_time(self, later: VirtualEvent) -> float:
        """Return the ms from this event to another on the device's clock."""
        first_s, last_s = self._lab.device_s([self._number, later._number])
        return (last_s - first_s) * 1e3


class VirtualTimer(CudaTimer):
    """A ``CudaTimer`` that follows in virtual time, without a thread."""

    def __init__(self, lab: VirtualLab) -> None:
        super().__init__(lab.event, lab.now_s)
        self._lab = lab

    def when_reached(self, mark: Any, callback: Callable[..., None], *arguments: Any) -> None:
        """See ``CudaTimer``."""
        self._lab.follow(mark.event, lambda: self.reached(mark, callback, *arguments))
