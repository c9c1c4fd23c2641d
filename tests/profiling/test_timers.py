"""CUDA events on a stream that is far behind the host: the trainer's thread never waits, no time is mixed up.

The stream is simulated: a thread executes enqueued kernels one after another, in real time, and events have
the methods of ``torch.cuda.Event``. Waits on the trainer's thread are counted.
"""

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import Recorder
from perseus_ds.profiling.timers import CudaTimer, late_switches

FORWARD, BACKWARD = Operation(Kind.FORWARD), Operation(Kind.BACKWARD)
DEVICE_EPOCH_S = 12345.678


class FakeStream:
    """Executes kernels (sleeps) in order, behind the host's back."""

    def __init__(self) -> None:
        self.trainer = threading.current_thread()
        self.synchronised = 0
        self.behind: SimpleQueue = SimpleQueue()
        self.thread = threading.Thread(target=self._execute, daemon=True)
        self.thread.start()

    def kernel(self, seconds: float) -> None:
        self.behind.put(seconds)

    def event(self) -> "FakeEvent":
        return FakeEvent(self)

    def _execute(self) -> None:
        while (work := self.behind.get()) is not None:
            if isinstance(work, FakeEvent):
                work.complete()
            else:
                time.sleep(work)


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


@pytest.fixture
def stream() -> Iterator[FakeStream]:
    stream = FakeStream()
    yield stream
    stream.behind.put(None)


def enqueue(recorder: Recorder, stream: FakeStream, kernels: list[tuple[Operation, float]]) -> None:
    recorder.iteration_begin(IterationClocks(1410, tuple(1410 - 15 * index for index in range(len(kernels)))))
    for operation, seconds in kernels:
        recorder.operation_begin(operation)
        stream.kernel(seconds)
        recorder.operation_end(operation)
    recorder.iteration_end()


def test_times_are_the_devices_though_the_host_runs_ahead_by_whole_iterations(stream: FakeStream) -> None:
    recorder = Recorder(CudaTimer(stream.event))
    kernels = [(FORWARD, 0.02), (BACKWARD, 0.05), (FORWARD, 0.03), (BACKWARD, 0.04)]
    begin_s = time.monotonic()
    for _ in range(3):
        enqueue(recorder, stream, kernels)
    enqueued_s = time.monotonic() - begin_s
    early = recorder.finished()
    time.sleep(0.7)

    done = recorder.finished()

    assert enqueued_s < 0.02, "the host waited for the device"
    assert early == []
    assert stream.synchronised == 0
    assert len(done) == 3
    for iteration in done:
        for timed, (_, seconds) in zip(iteration.operations, kernels, strict=True):
            assert seconds <= timed.duration_s < 1.5 * seconds + 0.01
    # What ran on the device 0.14 s, 0.28 s later was enqueued at once.
    assert done[2].begin_s - done[0].begin_s > 0.27


def test_an_iteration_still_on_the_device_is_handed_out_later(stream: FakeStream) -> None:
    recorder = Recorder(CudaTimer(stream.event))
    enqueue(recorder, stream, [(FORWARD, 0.01)])
    enqueue(recorder, stream, [(BACKWARD, 0.3)])
    time.sleep(0.1)

    assert [i.operations[0].operation for i in recorder.finished()] == [FORWARD]
    time.sleep(0.4)
    assert [i.operations[0].operation for i in recorder.finished()] == [BACKWARD]


def test_device_times_are_tied_to_the_hosts_clock_with_and_without_a_follower(stream: FakeStream) -> None:
    for callback in (None, lambda index: None):
        recorder = Recorder(CudaTimer(stream.event), callback)
        before_s = time.monotonic()
        enqueue(recorder, stream, [(FORWARD, 0.05), (BACKWARD, 0.05)])
        time.sleep(0.25)
        (iteration,) = recorder.finished()

        assert iteration.begin_s == pytest.approx(before_s, abs=0.02)
        assert iteration.end_s == pytest.approx(before_s + 0.1, abs=0.03)


def test_the_next_clock_is_requested_when_the_device_ends_an_instruction_not_the_host(
    stream: FakeStream,
) -> None:
    asked: dict[int, float] = {}

    def on_instruction_end(index: int) -> None:
        asked[index] = time.monotonic()

    timer = CudaTimer(stream.event)
    recorder = Recorder(timer, on_instruction_end)
    enqueue(recorder, stream, [(FORWARD, 0.05)] * 6)
    assert len(asked) <= 1
    timer.close()
    (iteration,) = recorder.finished()

    assert list(asked) == list(range(6))
    for index, timed in enumerate(iteration.operations):
        ended_s = iteration.begin_s + timed.end_s
        assert -1e-3 < asked[index] - ended_s < 0.03
    assert stream.synchronised == 0


def test_what_ends_the_follower_reaches_the_trainer(stream: FakeStream) -> None:
    def broken(index: int) -> None:
        raise ValueError("keeper is gone")

    recorder = Recorder(CudaTimer(stream.event), broken)
    enqueue(recorder, stream, [(FORWARD, 0.01)])
    time.sleep(0.1)

    with pytest.raises(ValueError, match="keeper is gone"):
        recorder.finished()


def test_requests_after_their_instruction_began_are_late() -> None:
    begins_s = [10.0, 10.1, 10.2, 10.3]

    requested_s = {0: 9.99, 1: 10.1004, 2: 10.205}
    assert late_switches(requested_s, begins_s) == 1
    assert late_switches(requested_s, begins_s, tolerance_s=0.01) == 0
