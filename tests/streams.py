"""Streams without a GPU: one that runs in real time behind the host's back, and one that a test moves by hand."""

import threading
import time
from collections import deque
from queue import SimpleQueue

DEVICE_EPOCH_S = 12345.678


class FakeStream:
    """Executes kernels (sleeps) in order, on a thread; waits of the trainer's thread are counted."""

    def __init__(self) -> None:
        self.trainer = threading.current_thread()
        self.synchronised = 0
        self.enqueued = 0
        self.executed = 0
        self.behind: SimpleQueue = SimpleQueue()
        self.thread = threading.Thread(target=self._execute, daemon=True)
        self.thread.start()

    def kernel(self, seconds: float) -> None:
        self.enqueued += 1
        self.behind.put(seconds)

    def let_host_be_ahead(self, kernels: int) -> None:
        """Hold the host, as a full launch queue does, until at most so many kernels are still to run."""
        while self.enqueued - self.executed > kernels:
            time.sleep(2e-4)

    def event(self) -> "FakeEvent":
        return FakeEvent(self)

    def _execute(self) -> None:
        while (work := self.behind.get()) is not None:
            if isinstance(work, FakeEvent):
                work.complete()
            else:
                time.sleep(work)
                self.executed += 1


class FakeEvent:
    """The part of ``torch.cuda.Event`` that is used; its clock is not the host's."""

    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        self.reached = threading.Event()
        self.device_s = 0.0

    def record(self) -> None:
        self.stream.behind.put(self)

    def complete(self) -> None:
        self.device_s = time.monotonic() + DEVICE_EPOCH_S
        self.reached.set()

    def query(self) -> bool:
        return self.reached.is_set()

    def synchronize(self) -> None:
        if threading.current_thread() is self.stream.trainer:
            self.stream.synchronised += 1
        self.reached.wait()

    def elapsed_time(self, other: "FakeEvent") -> float:
        assert self.query()
        assert other.query(), "CUDA: cudaErrorNotReady"
        return (other.device_s - self.device_s) * 1e3


class SteppedStream:
    """A timer whose device does one thing at a time, when told to: a mark, or a kernel, which is a function."""

    def __init__(self) -> None:
        self.queue: deque = deque()
        self.calls: dict[int, list] = {}
        self.reached: dict[int, float] = {}
        self.marks = 0
        self.kernels = 0

    def mark(self, followed: bool = False) -> int:
        self.marks += 1
        self.queue.append(self.marks)
        return self.marks

    def when_reached(self, mark: int, callback, *arguments) -> None:
        self.calls.setdefault(mark, []).append((callback, arguments))

    def times_s(self, marks) -> list[float] | None:
        return [self.reached[mark] for mark in marks] if all(mark in self.reached for mark in marks) else None

    def kernel(self, run) -> None:
        self.kernels += 1
        self.queue.append(run)

    def step(self) -> None:
        """Let the device do what it has to do next."""
        work = self.queue.popleft()
        if isinstance(work, int):
            self.reached[work] = time.monotonic()
            for callback, arguments in self.calls.pop(work, ()):
                callback(*arguments, self.reached[work])
        else:
            self.kernels -= 1
            work()

    def run_until_behind_by(self, kernels: int) -> None:
        """Let the device go on until so many kernels are left, and it has come to the next one."""
        while self.kernels > kernels or (self.queue and isinstance(self.queue[0], int)):
            self.step()
