"""A GPU of this machine, through torch, our own kernels, and NVML for reading."""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import pynvml
import torch

from perseus_ds.config import Config
from perseus_ds.device.nvml import NvmlDriver
from perseus_ds.device.observe import ObservedGpu
from perseus_ds.pipeline.events import Topology
from perseus_ds.profiling.timers import CudaTimer
from perseus_ds.runtime.rank_gpu import RankGpu
from perseus_ds.silicon.cuda_clocked import CudaClocked
from perseus_ds.silicon.cuda_network import CudaNetwork, count_waits
from perseus_ds.silicon.kernels import Kernel
from perseus_ds.silicon.lab import Event, Handshake, Host, Load, Watch
from perseus_ds.silicon.logging_keeper import LoggingKeeper
from perseus_ds.silicon.reader import beside
from perseus_ds.silicon.reading import nvml_readings

__all__ = ["CudaLab"]

_STAMPS = 1 << 16
_KERNELS = ("stamp", "spin", "shake", "clocked", "await_flag", "raise_flag")
_SETTLE_S = 200e-6
_WATCH_S = 0.001
_PATIENCE_S = 2.0
_CALIBRATED_BY = 50
_GRAPH_S = 0.010
_THREADS = 256
_MATRIX, _GENTLE, _COPY_BYTES = 4096, 2048, 1 << 28


class CudaLab:
    """See ``Lab``: the current CUDA device and its current stream. Stamps may be read after ``synchronize``."""

    virtual = False

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        torch.zeros(1, device="cuda")  # makes the context
        driver = NvmlDriver()
        driver.start()
        self._index = driver.find(str(properties.uuid))
        gpu = ObservedGpu(driver.open(self._index))
        self.name, self.driver_version = gpu.name, gpu.driver_version
        self.environment: Mapping[str, str] = {}
        self.multiprocessors: int = properties.multi_processor_count
        self.readings: Mapping[str, Callable[[], float]] = nvml_readings(self._index)
        architecture = f"sm_{properties.major}{properties.minor}"
        self._kernels = {name: Kernel(name, architecture) for name in _KERNELS}
        self._stamped, self._stamps = 0, _words(_STAMPS)
        self._shaken = _words(4)
        self._sink = _words(1)
        self._flag, self._stalls = _words(1), 0
        self._side, self._tiny = torch.cuda.Stream(), torch.zeros(16, device="cuda")
        self._base_ns = 0
        self._base_ns = round(self.handshake().device_s * 1e9)
        self._loads = {load: _Repeated(run) for load, run in _loads().items()}

    def now_s(self) -> float:
        """See ``Lab``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See ``Lab``."""
        time.sleep(seconds)

    def work(self, load: Load, seconds: float, blocks: int = 1) -> None:
        """See ``Lab``."""
        if load is Load.SPIN:
            sink, _ = self._sink
            self._launch("spin", round(seconds * 1e9), sink.data_ptr(), blocks=blocks, threads=_THREADS)
            return
        self._loads[load].enqueue(seconds)

    def _launch(self, name: str, *arguments: int, blocks: int = 1, threads: int = 1) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self._kernels[name](stream, *arguments, blocks=blocks, threads=threads)

    def event(self) -> Event:
        """See ``Lab``."""
        return torch.cuda.Event(enable_timing=True, blocking=True)

    def wait(self, event: Event, host: Host) -> None:
        """See ``Lab``."""
        if host is Host.WAITS:
            event.synchronize()
        while not event.query():
            if host is Host.LAUNCHES:
                with torch.cuda.stream(self._side):
                    self._tiny.add_(1.0)
            else:
                sum(range(100))

    def synchronize(self) -> None:
        """See ``Lab``."""
        torch.cuda.synchronize()

    def timer(self) -> CudaTimer:
        """See ``Lab``."""
        return CudaTimer()

    def stamp(self) -> int:
        """See ``Lab``."""
        number = self._stamped
        self._stamped += 1
        self._launch("stamp", self._stamps[0].data_ptr() + 8 * (number % _STAMPS))
        return number

    def device_s(self, stamps: Sequence[int]) -> list[float]:
        """See ``Lab``; only the latest 65,536 stamps are kept."""
        words = self._stamps[1]
        return [(words[number % _STAMPS] - self._base_ns) / 1e9 for number in stamps]

    def handshake(self) -> Handshake:
        """See ``Lab``."""
        tensor, words = self._shaken
        words[0] = words[1] = words[2] = 0
        self._launch("shake", tensor.data_ptr(), 1)
        time.sleep(_SETTLE_S)
        before_s = time.monotonic()
        words[0] = 1
        while words[1] != 1:
            if time.monotonic() - before_s > _PATIENCE_S:
                raise TimeoutError("the device does not answer")
        after_s = time.monotonic()
        device_s = (words[2] - self._base_ns) / 1e9
        torch.cuda.synchronize()
        return Handshake(before_s, device_s, after_s)

    def keeper(self) -> LoggingKeeper:
        """See ``Lab``."""
        return LoggingKeeper()

    def clocked(self) -> CudaClocked:
        """See ``Lab``."""
        return CudaClocked(self._launch)

    def watch(self, names: Sequence[str]) -> Watch:
        """See ``Lab``; a thread reads."""
        taken: list[tuple[float, tuple[float, ...]]] = []
        stopping = threading.Event()

        def look() -> None:
            while not stopping.is_set():
                at_s = time.monotonic()
                taken.append((at_s, tuple(self.readings[name]() for name in names)))
                stopping.wait(max(0.0, at_s + _WATCH_S - time.monotonic()))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()

        def stop() -> list[tuple[float, tuple[float, ...]]]:
            stopping.set()
            thread.join()
            return taken

        return Watch(stop)

    def other_readers(self, count: int) -> AbstractContextManager[None]:
        """See ``Lab``."""
        return beside("perseus_ds.silicon.reader", self._index, count=count)

    def other_trainers(self, count: int) -> AbstractContextManager[None]:
        """See ``Lab``."""
        return beside("perseus_ds.silicon.trainer", count=count)

    def stall(self, seconds: float) -> None:
        """See ``Lab``: another stream begins when this one is here, and raises a flag when it is done."""
        self._stalls += 1
        flag, here = self._flag[0].data_ptr(), torch.cuda.Event()
        here.record()
        with torch.cuda.stream(self._side):
            self._side.wait_event(here)
            self.work(Load.SPIN, seconds)
            self._launch("raise_flag", flag, self._stalls)
        self._launch("await_flag", flag, self._stalls)

    def capture(self, seconds: float) -> bool:
        """See ``Lab``; in CUDA's strictest mode, which is torch's default."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._side):
            graph.capture_begin(capture_error_mode="global")
            time.sleep(seconds)
            try:
                self._tiny.add_(1.0)
            except RuntimeError:  # a broken capture takes nothing more
                pass
            finally:
                whole = _ends(graph)
        return whole

    def contexts(self) -> int:
        """See ``Lab``."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        return len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))

    def network(self) -> CudaNetwork:
        """See ``Lab``."""
        return CudaNetwork()

    def rank_gpu(self, config: Config, topology: Topology) -> RankGpu:
        """See ``Lab``: the real one, with a clock keeper that observes."""
        return RankGpu(config, topology)

    def count_waits(self, run: Callable[[], None]) -> int:
        """See ``Lab``."""
        return count_waits(run)

    def close(self) -> None:
        """See ``Lab``."""
        torch.cuda.synchronize()


def _ends(graph: torch.cuda.CUDAGraph) -> bool:
    """End a capture and return whether it is whole."""
    try:
        graph.capture_end()
    except RuntimeError:
        return False
    return True


def _words(count: int) -> tuple[torch.Tensor, ctypes.Array[ctypes.c_uint64]]:
    """Return pinned memory that both sides see, as a tensor and as numbers for the host."""
    tensor = torch.zeros(count, dtype=torch.int64).pin_memory()
    return tensor, (ctypes.c_uint64 * count).from_address(tensor.data_ptr())


def _loads() -> dict[Load, Callable[[], object]]:
    """Return one launch of each load."""
    torch.backends.cuda.matmul.allow_tf32 = False
    matrix = torch.randn(_MATRIX, _MATRIX, device="cuda", dtype=torch.bfloat16)
    gentle = torch.randn(_GENTLE, _GENTLE, device="cuda")
    source = torch.zeros(_COPY_BYTES, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return {
        Load.MATRIX: functools.partial(torch.mm, matrix, matrix, out=torch.empty_like(matrix)),
        Load.GENTLE: functools.partial(torch.mm, gentle, gentle, out=torch.empty_like(gentle)),
        Load.MEMORY: functools.partial(target.copy_, source),
    }


class _Repeated:
    """A load that is launched again and again; mostly many at once, as the launch queue holds about 1,000 launches."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._unit_s = _unit_s(run)
        many = max(1, round(_GRAPH_S / self._unit_s))
        self._graph_s = many * self._unit_s
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(many):
                run()

    def enqueue(self, seconds: float) -> None:
        """Enqueue about that much work."""
        graphs = int(seconds / self._graph_s)
        for _ in range(graphs):
            self._graph.replay()
        for _ in range(round((seconds - graphs * self._graph_s) / self._unit_s)):
            self._run()


def _unit_s(run: Callable[[], object]) -> float:
    """Return the time of one launch."""
    for _ in range(_CALIBRATED_BY):
        run()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(_CALIBRATED_BY):
        run()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / _CALIBRATED_BY
