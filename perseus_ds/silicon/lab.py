"""What experiments use of a GPU and its host: the same on silicon and in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from perseus_ds.config import Config
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.timers import CudaTimer

__all__ = ["Asked", "Clocked", "Event", "Handshake", "Host", "Keeper", "Lab", "Load", "Network", "Watch", "between"]


class Load(Enum):
    """Something for the GPU to do."""

    MATRIX = "bf16 matrix work"
    GENTLE = "fp32 matrix work"
    MEMORY = "memory work"
    SPIN = "spinning on one multiprocessor"


class Host(Enum):
    """What the trainer's thread does while it waits for the device."""

    WAITS = "waiting"
    LAUNCHES = "launching"
    COMPUTES = "in Python"


class Asked(NamedTuple):
    """A clock that the logging keeper would have set.

    Attributes:
        mhz: The clock.
        at_s: When, on the host's clock.
    """

    mhz: int
    at_s: float


class Handshake(NamedTuple):
    """One moment on two clocks.

    Attributes:
        before_s: Time on the host just before.
        device_s: Time on the device.
        after_s: Time on the host just after.
    """

    before_s: float
    device_s: float
    after_s: float

    @property
    def offset_s(self) -> float:
        """Host's time less device's."""
        return (self.before_s + self.after_s) / 2.0 - self.device_s

    @property
    def doubt_s(self) -> float:
        """How far off ``offset_s`` may be."""
        return (self.after_s - self.before_s) / 2.0


class Event(Protocol):
    """The part of ``torch.cuda.Event`` that is used."""

    def record(self) -> None:
        """Put it into the stream."""
        ...

    def query(self) -> bool:
        """Return whether the device has reached it."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...


class Keeper(Protocol):
    """A clock keeper that logs what it would set."""

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """Request a clock for a time; see ``ClockKeeper.set_mhz``."""
        ...

    def close(self) -> Sequence[Asked]:
        """End it and return its log."""
        ...


class Clocked(Protocol):
    """Forwards and backwards at the speed of a clock that is not the GPU's own, and the keeper that sets it.

    Attributes:
        clocks_mhz: Its values, descending.
    """

    clocks_mhz: tuple[int, ...]

    def run(self, kind: Kind) -> None:
        """Enqueue a forward or a backward."""
        ...

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """Request a clock for a time; see ``ClockKeeper.set_mhz``."""
        ...

    def latency_s(self, mhz: int) -> float:
        """Return the usual time from a request to a clock."""
        ...

    def close(self) -> Sequence[Asked]:
        """End the keeper and return when each clock was there."""
        ...


@dataclass(frozen=True)
class Watch:
    """Values read again and again beside the experiment.

    Attributes:
        stop: Ends it; returns the time and the values of each reading.
    """

    stop: Callable[[], list[tuple[float, tuple[float, ...]]]]


class Network(Protocol):
    """Something to train."""

    def run(self, kernels: int) -> None:
        """Enqueue about so many kernels."""
        ...

    def loss(self) -> bytes:
        """Return what has been computed so far, bit for bit."""
        ...


class Lab(Protocol):
    """One GPU, one stream, one host.

    Attributes:
        virtual: Whether nothing of it is real.
        name: The GPU's model.
        driver_version: Its driver.
        readings: What can be read of the GPU, by name; each call is one call of NVML.
        multiprocessors: Number of SMs.
        environment: What lets child processes see the GPU.
    """

    virtual: bool
    name: str
    driver_version: str
    readings: Mapping[str, Callable[[], float]]
    multiprocessors: int
    environment: Mapping[str, str]

    def now_s(self) -> float:
        """Return the host's time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass on the host."""
        ...

    def work(self, load: Load, seconds: float, blocks: int = 1) -> None:
        """Enqueue work of about that length at the highest clock; ``blocks`` is for ``Load.SPIN``."""
        ...

    def event(self) -> Event:
        """Make an event of the stream."""
        ...

    def wait(self, event: Event, host: Host) -> None:
        """Wait for an event, busy with something."""
        ...

    def synchronize(self) -> None:
        """Wait for the device."""
        ...

    def timer(self) -> CudaTimer:
        """Make a timer of the stream."""
        ...

    def stamp(self) -> int:
        """Enqueue a reading of the device's own clock, and return its number."""
        ...

    def device_s(self, stamps: Sequence[int]) -> list[float]:
        """Return what stamps have read, in s on the device's clock; the device has reached them."""
        ...

    def handshake(self) -> Handshake:
        """Read both clocks at one moment; the device is idle."""
        ...

    def keeper(self) -> Keeper:
        """Start a keeper that logs."""
        ...

    def clocked(self) -> Clocked:
        """Make instructions with a clock of their own."""
        ...

    def watch(self, names: Sequence[str]) -> Watch:
        """Read values of ``readings`` every ms; in virtual time every 10 ms, which costs less."""
        ...

    def other_readers(self, count: int) -> AbstractContextManager[None]:
        """Let other processes read the same GPU all the time."""
        ...

    def other_trainers(self, count: int) -> AbstractContextManager[None]:
        """Let other processes train on the same host, each with a keeper; a virtual one takes no notice of them."""
        ...

    def stall(self, seconds: float) -> None:
        """Let the stream wait so long for another one."""
        ...

    def capture(self, seconds: float) -> bool:
        """Capture a graph in a stream of its own, which takes the host so long; return whether it is whole."""
        ...

    def contexts(self) -> int:
        """Return the number of processes on the GPU."""
        ...

    def network(self) -> Network:
        """Make a network, always the same."""
        ...

    def rank_gpu(self, config: Config, topology: Topology) -> Any:
        """Return the ``RankGpu`` of a rank."""
        ...

    def count_waits(self, run: Callable[[], None]) -> int:
        """Return how often this thread waits for the device in a function."""
        ...

    def close(self) -> None:
        """End what this lab has begun."""
        ...


def between(handshakes: Sequence[Handshake]) -> Callable[[float], float]:
    """Return a map from device time to host time: straight between the best handshake of each half.

    Args:
        handshakes: At least two, in order; some before and some after what is to be timed.
    """
    half = len(handshakes) // 2
    first = min(handshakes[:half], key=lambda one: one.doubt_s)
    last = min(handshakes[half:], key=lambda one: one.doubt_s)
    slope = (last.offset_s - first.offset_s) / (last.device_s - first.device_s)
    return lambda device_s: device_s + first.offset_s + slope * (device_s - first.device_s)
