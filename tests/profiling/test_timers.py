"""CUDA events on a stream that is far behind the host: the trainer's thread never waits, no time is mixed up."""

import ctypes
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from streams import FakeEvent, FakeStream

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import IterationToken, Recorder
from perseus_ds.profiling.timers import CudaTimer
from perseus_ds.runtime.frequency_controller import FrequencyController

FORWARD, BACKWARD = Operation(Kind.FORWARD), Operation(Kind.BACKWARD)


@pytest.fixture
def stream() -> Iterator[FakeStream]:
    stream = FakeStream()
    yield stream
    stream.behind.put(None)


def enqueue(recorder: Recorder, stream: FakeStream, kernels: list[tuple[Operation, float]]) -> None:
    recorder.iteration_begin(IterationClocks(1410, tuple(1410 - 15 * index for index in range(len(kernels)))), 0)
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
    for callback in (None, lambda *_: None):
        recorder = Recorder(CudaTimer(stream.event), None, callback)
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

    def on_instruction_end(token: IterationToken, index: int, at_s: float) -> None:
        asked[index] = time.monotonic()

    timer = CudaTimer(stream.event)
    recorder = Recorder(timer, None, on_instruction_end)
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
    def broken(token: IterationToken, index: int, at_s: float) -> None:
        raise ValueError("keeper is gone")

    recorder = Recorder(CudaTimer(stream.event), None, broken)
    enqueue(recorder, stream, [(FORWARD, 0.01)])
    time.sleep(0.1)

    with pytest.raises(ValueError, match="keeper is gone"):
        recorder.finished()


@pytest.mark.parametrize("ahead", [0, 1, 3, 50])
def test_clocks_are_asked_for_at_the_borders_of_the_iteration_that_the_device_is_in(
    stream: FakeStream, ahead: int
) -> None:
    asked: list[tuple[int, float]] = []
    frequencies = FrequencyController(lambda mhz, _: asked.append((mhz, time.monotonic())), lambda _: 0.0)
    timer = CudaTimer(stream.event)
    recorder = Recorder(timer, frequencies.begin, frequencies.instruction_ended)
    plans = [(1400, 1300, 1200, 1100), (1000, 1100, 1200, 1300), None, (900, 800, 700, 600)]
    for number, planned in enumerate(plans):
        clocks = IterationClocks(1410, planned or ())
        recorder.iteration_begin(clocks, number if planned else None)
        for _ in range(4):
            stream.let_host_be_ahead(ahead)
            recorder.operation_begin(FORWARD)
            stream.kernel(0.004)
            recorder.operation_end(FORWARD)
        recorder.iteration_end()
    timer.close()

    done = recorder.finished()
    expected = []
    for iteration, planned in zip(done, plans, strict=True):
        begins_s = [iteration.begin_s + timed.begin_s for timed in iteration.operations]
        ends_s = [iteration.begin_s + timed.end_s for timed in iteration.operations]
        assert [timed.frequency_mhz for timed in iteration.operations] == list(planned or [1410] * 4)
        expected += zip([*(planned or [1410] * 4), (planned or [1410])[0]], [iteration.begin_s, *ends_s], strict=True)
        for index, requested_s in iteration.requested_s.items():
            assert begins_s[0] - 0.02 < requested_s
            assert requested_s < (begins_s[index] if index < 4 else ends_s[3]) + 0.02
    assert [mhz for mhz, _ in asked] == [mhz for mhz, _ in expected]
    for (_, asked_s), (_, border_s) in zip(asked, expected, strict=True):
        assert border_s - 1e-4 < asked_s < border_s + 0.02
    assert stream.synchronised == 0


class At:
    """An event that is over as soon as it is recorded, at a time on the device's clock that the test chooses."""

    device_s = 0.0

    def record(self) -> None:
        self.at_s = At.device_s

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: "At") -> float:
        return (other.at_s - self.at_s) * 1e3


def test_an_iteration_enqueued_early_is_placed_by_the_device_s_clock_since_the_one_before() -> None:
    now_s = 10.0
    timer = CudaTimer(At, lambda: now_s)

    def marks(*both: tuple[float, float]) -> list:
        nonlocal now_s
        made = []
        for now_s, At.device_s in both:  # noqa: B007
            made.append(timer.mark())
        return made

    # The device's clock is 90 s ahead of the host's.
    assert timer.times_s(marks((10.0, 100.0), (10.2, 100.5))) == pytest.approx([10.0, 10.5])
    # Enqueued at once, 0.5 s before the device comes to it.
    assert timer.times_s(marks((11.0, 101.5), (11.0, 101.8))) == pytest.approx([11.5, 11.8])
    # Nothing is over before it was recorded: the clocks drift, and the host's counts.
    assert timer.times_s(marks((12.0, 101.9), (12.1, 102.0))) == pytest.approx([12.0, 12.1])
    # Nor after it was seen to be over.
    seen = marks((13.0, 103.9), (13.0, 104.0))
    seen[1].seen_s = 13.6
    assert timer.times_s(seen) == pytest.approx([13.5, 13.6])


def test_clocks_that_have_drifted_apart_meet_in_the_middle_of_tight_bounds() -> None:
    now_s = 10.0
    timer = CudaTimer(At, lambda: now_s)

    def seen(recorded_s: float, seen_s: float, device_s: float) -> list:
        nonlocal now_s
        now_s, At.device_s = recorded_s, device_s
        mark = timer.mark()
        mark.seen_s = seen_s
        return [mark]

    assert timer.times_s(seen(10.0, 10.0002, 100.0)) == pytest.approx([10.0001], abs=1e-9)
    # 0.05 ms of drift are within the bounds, 0.5 ms are not.
    assert timer.times_s(seen(11.0, 11.0002, 101.00005)) == pytest.approx([11.00015], abs=1e-9)
    assert timer.times_s(seen(12.0, 12.0002, 102.0005)) == pytest.approx([12.0001], abs=1e-9)


def test_a_trainer_in_pure_python_holds_the_follower_up_for_a_moment_only(stream: FakeStream) -> None:
    """On an H100 it was 5 to 10 ms: with Python's own interval, each of two waits for the interpreter took 5 ms."""
    before_s = sys.getswitchinterval()
    reached_s: list[float] = []
    first, second = CudaTimer(stream.event), CudaTimer(stream.event)
    for timer in (first, second):
        timer.when_reached(timer.mark(followed=True), reached_s.append)
        assert sys.getswitchinterval() <= 1e-4
    first.close()
    assert sys.getswitchinterval() <= 1e-4
    second.close()
    assert len(reached_s) == 2
    assert sys.getswitchinterval() == before_s


def test_a_follower_that_comes_late_tells_when_the_device_was_there() -> None:
    now_s, told_s = 10.0, []
    timer = CudaTimer(At, lambda: now_s)
    At.device_s = 100.0
    first = timer.mark()
    assert timer.times_s([first]) == [10.0]
    At.device_s = 100.5
    second = timer.mark(followed=True)
    now_s = 10.52
    timer.when_reached(second, lambda number, at_s: told_s.append((number, at_s)), 7)
    timer.close()
    assert told_s == [(7, pytest.approx(10.5))]


@pytest.mark.parametrize("who", ["begin", "instruction"])
def test_an_iteration_is_not_handed_out_before_its_last_callback_was_called(stream: FakeStream, who: str) -> None:
    may_ask = threading.Event()
    timer = CudaTimer(stream.event)
    callbacks = {"begin": (lambda *_: may_ask.wait(5.0), None), "instruction": (None, lambda *_: may_ask.wait(5.0))}
    recorder = Recorder(timer, *callbacks[who])
    enqueue(recorder, stream, [(FORWARD, 0.01)])
    time.sleep(0.1)

    assert recorder.finished() == []
    may_ask.set()
    timer.close()
    assert len(recorder.finished()) == 1


def test_who_follows_the_stream_lets_another_thread_capture_a_graph(stream: FakeStream, monkeypatch) -> None:
    """As CUDA has it: while any thread captures in its default mode, no thread in that mode may wait for an event."""
    modes: dict[int, int] = {}
    kinds: list[dict[str, bool]] = []

    class Event(FakeEvent):
        def synchronize(self) -> None:
            assert modes.get(threading.get_ident(), 0) == 1, "operation not permitted when stream is capturing"
            super().synchronize()

    class Driver:
        def __init__(self, name: str) -> None:
            assert name == "libcuda.so.1"

        def cuThreadExchangeStreamCaptureMode(self, mode) -> None:
            modes[threading.get_ident()], mode._obj.value = mode._obj.value, modes.get(threading.get_ident(), 0)

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    monkeypatch.setattr(torch.cuda, "Event", lambda **kind: kinds.append(kind) or Event(stream))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    followed = threading.Event()
    recorder = Recorder(CudaTimer(), None, lambda *_: followed.set())
    enqueue(recorder, stream, [(FORWARD, 0.01)])
    assert followed.wait(20.0)
    assert list(modes.values()) == [1], "the trainer's own thread stays as it is"
    # A thread can sleep until the instruction's and the iteration's end; nobody waits for the begins.
    assert [kind["blocking"] for kind in kinds] == [False, False, True, True]
    assert all(kind["enable_timing"] for kind in kinds)
