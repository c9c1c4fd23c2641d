"""A GPU and its host in virtual time: what happens, happens in order, and no busy machine delays it.

The real recorder, timer, controller, pending requests, pynvml and attribution run on it. Their time is this lab's.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from perseus_ds.config import Config
from perseus_ds.device.nvml import NvmlDriver
from perseus_ds.device.observe import ObservedGpu
from perseus_ds.pipeline.events import Topology
from perseus_ds.profiling.timers import CudaTimer
from perseus_ds.silicon.lab import Event, Handshake, Host, Load, Watch
from perseus_ds.silicon.reading import nvml_readings
from perseus_ds.silicon.virtual_clocked import VirtualClocked
from perseus_ds.silicon.virtual_keeper import VirtualKeeper
from perseus_ds.silicon.virtual_loads import CLOCKS_MHZ, IDLE_W, UNITS_S, load_curves
from perseus_ds.silicon.virtual_rank import VirtualNetwork, VirtualRankGpu
from perseus_ds.silicon.virtual_timer import LabEvent, LabStream, VirtualTimer
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE, install_driver, uninstall_driver
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.models import MODELS
from perseus_ds.simulator.state import MAX_ITEMS, state_path

__all__ = ["VirtualLab"]

EPOCH_S = 1000.0
_HANDSHAKE_S = 4e-6
_WATCH_S = 0.010
_SOON_S = 1e-7  # after a moment that was forecast, it is over


class VirtualLab:
    """See ``Lab``.

    Args:
        directory: Place for the GPU's state file.
        **physics: Constants of ``Nature`` that differ from the simulator's H200.
    """

    virtual = True
    multiprocessors = 132
    follower_lag_s = 20e-6
    keeper_lag_s = 20e-6
    follower_captures_locally = True

    def __init__(self, directory: Path, **physics: Any) -> None:
        self._now_s = time.monotonic()
        physics = {**MODELS["h200"].physics, "blocking_power_w": IDLE_W, **physics}
        spec = GpuSpec(CLOCKS_MHZ, name="Simulated GPU (h200)", **physics)
        create_gpu(state_path(directory, 0), spec)
        self.driver = install_driver(directory, self.now_s, self._pass)
        self._gpu: VirtualGpu = self.driver.gpus[0]
        self.spec = self._gpu.spec
        self.environment: Mapping[str, str] = {SIMULATOR_VARIABLE: str(directory)}
        self.waits = 0
        self._capturing = self._broken = False
        self._curves = load_curves()
        self._gpu.load_curves(dict(self._curves.values()))
        self._now_s = self._gpu.card.file.state.dynamic.time_s
        self.stream = LabStream(self._gpu)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._followed: deque[tuple[int, Callable[[], None]]] = deque()
        self._forecasts: dict[int, float] = {}
        self._forecast_for: tuple[int, int] = (0, 0)
        nvml = NvmlDriver()
        nvml.start()
        opened = ObservedGpu(nvml.open(0))
        self.name, self.driver_version = opened.name, opened.driver_version
        self.readings: Mapping[str, Callable[[], float]] = nvml_readings(0)

    # -- time ---------------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """See ``Lab``."""
        return self._now_s

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds

    def at(self, at_s: float, call: Callable[[], None]) -> None:
        """Let something happen at a time, or at once if that is over."""
        heapq.heappush(self._agenda, (at_s, next(self._order), call))

    def sleep(self, seconds: float) -> None:
        """See ``Lab``."""
        until_s = self._now_s + seconds
        while self._now_s < until_s or self._is_due():
            self._step(until_s)

    def _is_due(self) -> bool:
        return bool(self._agenda) and self._agenda[0][0] <= self._now_s

    def _step(self, until_s: float) -> None:
        """Go on to what happens next, at the latest to a time."""
        planned_s = self._agenda[0][0] if self._agenda else math.inf
        seen_s = self._over_s(self._followed[0][0]) + self.follower_lag_s if self._followed else math.inf
        self._now_s = max(self._now_s, min(until_s, planned_s, seen_s))
        if seen_s <= min(self._now_s, planned_s):
            self._broken |= self._capturing and not self.follower_captures_locally
            number, seen = self._followed.popleft()
            self.wait_for(number)  # forecast until now
            seen()
        elif planned_s <= self._now_s:
            heapq.heappop(self._agenda)[2]()

    def _over_s(self, number: int) -> float:
        """Return when an item of the stream is over, as far as is known."""
        with self._gpu.moment() as (moment, state):
            if state.head > number:
                return self.stream.ended_s(number)
            known = (state.requests, self._gpu.card.file.state.tail)
            if self._forecast_for != known:
                self._forecasts, self._forecast_for = {}, known
            if number not in self._forecasts:
                self._forecasts[number] = moment.forecast_s(number)
        return self._forecasts[number] + _SOON_S

    def wait_for(self, number: int) -> None:
        """Let time pass until an item of the stream is over."""
        while not self.stream.is_over(number):
            self._step(self._over_s(number))

    # -- the stream ---------------------------------------------------------------------------------------

    def work(self, load: Load, seconds: float, blocks: int = 1) -> None:
        """See ``Lab``."""
        left_s = seconds
        for unit_s in UNITS_S:
            key = self._curves[load, blocks if load is Load.SPIN else 1, unit_s][0]
            for _ in range(int(left_s / unit_s + 1e-6)):
                self._make_room()
                self.stream.work(key)
                left_s -= unit_s

    def _make_room(self) -> None:
        """Hold the host while the stream is full."""
        state = self._gpu.card.file.state
        if state.tail - state.dynamic.head >= MAX_ITEMS // 4:
            self.wait_for(state.tail - MAX_ITEMS // 8)

    def event(self) -> Event:
        """See ``Lab``."""
        return LabEvent(self)

    def wait(self, event: Event, host: Host) -> None:
        """See ``Lab``; the virtual host does nothing besides."""
        event.synchronize()

    def synchronize(self) -> None:
        """See ``Lab``."""
        self.waits += 1
        self.wait_for(self.stream.mark())
        self.sleep(2 * self.follower_lag_s)

    def timer(self) -> CudaTimer:
        """See ``Lab``."""
        return VirtualTimer(self)

    def follow(self, event: LabEvent, seen: Callable[[], None]) -> None:
        """Let something happen as soon as the device has been seen to reach an event."""
        self._followed.append((event.number, seen))

    # -- clocks -------------------------------------------------------------------------------------------

    def device_clock_s(self, host_s: float) -> float:
        """Return what the device's clock shows."""
        return host_s + EPOCH_S

    def stamp(self) -> int:
        """See ``Lab``."""
        return self.stream.mark()

    def device_s(self, stamps: Sequence[int]) -> list[float]:
        """See ``Lab``."""
        return [self.device_clock_s(self.stream.ended_s(number)) for number in stamps]

    def handshake(self) -> Handshake:
        """See ``Lab``."""
        before_s = self._now_s
        self.sleep(_HANDSHAKE_S)
        return Handshake(before_s, self.device_clock_s(before_s + _HANDSHAKE_S / 2), self._now_s)

    def keeper(self) -> VirtualKeeper:
        """See ``Lab``."""
        return VirtualKeeper(self)

    def clocked(self) -> VirtualClocked:
        """See ``Lab``."""
        return VirtualClocked(self, self._gpu)

    def watch(self, names: Sequence[str]) -> Watch:
        """See ``Lab``."""
        taken: list[tuple[float, tuple[float, ...]]] = []
        running = [True]

        def look() -> None:
            if running:
                at_s = self._now_s
                taken.append((at_s, tuple(self.readings[name]() for name in names)))
                self.at(max(at_s + _WATCH_S, self._now_s), look)

        def stop() -> list[tuple[float, tuple[float, ...]]]:
            running.clear()
            return taken

        self.at(self._now_s, look)
        return Watch(stop)

    def other_trainers(self, count: int) -> AbstractContextManager[None]:
        """See ``Lab``."""
        return nullcontext()

    # -- what only some experiments need ------------------------------------------------------------------

    def stall(self, seconds: float) -> None:
        """See ``Lab``."""
        self.work(Load.SPIN, seconds)

    def capture(self, seconds: float) -> bool:
        """See ``Lab``."""
        self._capturing, self._broken = True, False
        self.sleep(seconds)
        self._capturing = False
        return not self._broken

    def contexts(self) -> int:
        """See ``Lab``: a virtual GPU has none."""
        return 0

    def network(self) -> VirtualNetwork:
        """See ``Lab``."""
        return VirtualNetwork(self)

    def rank_gpu(self, config: Config, topology: Topology) -> Any:
        """See ``Lab``."""
        return VirtualRankGpu(self)

    def count_waits(self, run: Callable[[], None]) -> int:
        """See ``Lab``."""
        before = self.waits
        run()
        return self.waits - before

    @contextmanager
    def other_readers(self, count: int) -> Iterator[None]:
        """See ``Lab``: each reading waits until those of the others are over."""
        before = self.readings

        def among_others(read: Callable[[], float]) -> float:
            self._pass(count * self._gpu.spec.query_s)
            return read()

        self.readings = {name: partial(among_others, read) for name, read in before.items()}
        try:
            yield
        finally:
            self.readings = before

    def close(self) -> None:
        """See ``Lab``."""
        self.stream.close()
        self._gpu.close()
        uninstall_driver()
