"""The host beside a virtual stream, in real time: how far it runs ahead, and when it is let go."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.profiling.timers import CudaTimer
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.launch import VirtualEvent, VirtualStream
from perseus_ds.simulator.state import state_path
from perseus_ds.simulator.stream import HOST_OVERHEAD_S

KEY = CurveKey(0, Kind.FORWARD)
WORK_S = 0.05


@pytest.fixture
def make_gpu(tmp_path):
    def make(index=0):
        path = state_path(tmp_path, index)
        create_gpu(path, GpuSpec(clocks_mhz=(1400, 700), switch_latency_s=0.005), index)
        gpu = VirtualGpu(path)
        gpu.load_curves({KEY: [ProfilePoint(1400, WORK_S, 15.0), ProfilePoint(700, 2 * WORK_S, 10.0)]})
        return gpu

    return make


def seconds(call):
    begin_s = time.monotonic()
    call()
    return time.monotonic() - begin_s


def test_without_a_launch_queue_the_host_waits_for_each_instruction(make_gpu):
    stream = VirtualStream(make_gpu())
    stream.work(KEY)
    assert seconds(stream.instruction_enqueued) == pytest.approx(WORK_S, rel=0.2)


def test_with_a_launch_queue_the_host_is_ahead_by_as_many_instructions(make_gpu):
    stream = VirtualStream(make_gpu(), launch_queue=3)
    waited_s = []
    for _ in range(5):
        stream.work(KEY)
        waited_s.append(seconds(stream.instruction_enqueued))
    assert max(waited_s[:3]) < 0.2 * WORK_S
    assert waited_s[3:] == pytest.approx([WORK_S, WORK_S], rel=0.3)
    assert seconds(stream.synchronize) == pytest.approx(3 * WORK_S, rel=0.2)


@pytest.mark.against_the_clock("the host works in real time, and a stall beyond its lead shows")
def test_real_work_within_the_hosts_lead_costs_no_virtual_time(make_gpu):
    stream = VirtualStream(make_gpu(), launch_queue=8, host_lead_s=0.03)
    first = stream.mark()
    for _ in range(5):
        stream.work(KEY)
        stream.synchronize()
        time.sleep(0.01)
    last = stream.mark()
    stream.wait_until_over(last)
    took_s = stream.ended_s(last) - stream.ended_s(first)
    assert took_s == pytest.approx(5 * (WORK_S + HOST_OVERHEAD_S), rel=0.002)


def test_what_was_waited_for_has_ended(make_gpu):
    stream = VirtualStream(make_gpu())
    begun = stream.mark()
    for _ in range(30):
        stream.work(KEY, factor=0.02)
        mark = stream.mark()
        stream.wait_until_over(mark)
        assert stream.ended_s(mark) > stream.ended_s(begun)


def test_a_clock_that_rises_meanwhile_is_noticed(make_gpu):
    gpu = make_gpu()
    stream = VirtualStream(gpu)
    gpu.lock_clock(700)
    time.sleep(0.02)
    stream.work(KEY)
    timer = threading.Timer(0.045, gpu.reset_clocks)
    timer.start()
    # Half of it at 700 MHz, the other half at 1400 MHz.
    assert seconds(stream.instruction_enqueued) == pytest.approx(1.5 * WORK_S, rel=0.2)
    timer.join()


def test_events_are_followed_as_those_of_cuda(make_gpu):
    stream = VirtualStream(make_gpu(), launch_queue=8)
    timer, reached = CudaTimer(lambda: VirtualEvent(stream)), []
    marks = [timer.mark()]
    for index in range(3):
        stream.work(KEY)
        marks.append(timer.mark())
        timer.when_reached(marks[-1], lambda at, _: reached.append((at, time.monotonic())), index)
    assert timer.times_s(marks) is None
    stream.synchronize()
    timer.close()
    times_s = timer.times_s(marks)
    assert times_s is not None
    assert [end_s - times_s[0] for end_s in times_s[1:]] == pytest.approx([WORK_S, 2 * WORK_S, 3 * WORK_S], rel=0.01)
    assert [index for index, _ in reached] == [0, 1, 2]
    for (_, seen_s), end_s in zip(reached, times_s[1:], strict=True):
        assert 0.0 <= seen_s - end_s < 0.05


def enqueue_and_hang(path, ready):
    VirtualStream(VirtualGpu(path))
    ready.set()
    time.sleep(60)


def test_a_transfer_with_a_gpu_whose_process_is_killed_does_not_hang(make_gpu, tmp_path):
    gpu, other = make_gpu(0), make_gpu(1)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=enqueue_and_hang, args=(state_path(tmp_path, 1), ready))
    process.start()
    assert ready.wait(30)
    stream = VirtualStream(gpu)
    stream.wait(stream.post(1, 0))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert seconds(stream.synchronize) < 5.0
    assert other.card.file.state.dynamic.gone


def test_who_abandons_a_pass_holds_nobody_up_and_is_waited_for_again_in_the_next(make_gpu):
    streams = [VirtualStream(make_gpu(index)) for index in range(2)]
    streams[0].close()
    streams[1].wait(streams[1].post(0, 0))
    assert seconds(streams[1].synchronize) < 5.0
    for stream in streams:
        stream.begin_pass(1)
    assert not streams[0]._state.dynamic.gone
    streams[1].wait(streams[1].post(0, 0))
    mark = streams[1].mark()
    assert not streams[1].is_over(mark)
    streams[0].wait(streams[0].post(1, 1))
    streams[1].synchronize()
    assert streams[1].is_over(mark)
