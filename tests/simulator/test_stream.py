"""Streams of several virtual GPUs in virtual time: order, transfers, who looks when, and forecasts."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import SLOW, SPEC, VirtualTime

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.gpu import VirtualGpu, create_gpu
from perseus_ds.simulator.launch import VirtualStream
from perseus_ds.simulator.state import state_path

FORWARD, BACKWARD, TRANSFER = (CurveKey(0, kind) for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.EXCHANGE))
CURVES = {
    FORWARD: [ProfilePoint(1400, 0.03, 9.0), ProfilePoint(700, 0.06, 6.0)],
    BACKWARD: [ProfilePoint(1400, 0.06, 18.0), ProfilePoint(700, 0.12, 12.0)],
    TRANSFER: [ProfilePoint(1400, 0.002, 0.2), ProfilePoint(700, 0.003, 0.2)],
}
ACTIVATION, GRADIENT = 0, 2
_numbers = itertools.count()


class Pipeline:
    """Some GPUs of one directory, each with its stream, in one virtual time."""

    def __init__(self, directory, count, spec=SPEC):
        home = directory / str(next(_numbers))
        home.mkdir()
        for index in range(count):
            create_gpu(state_path(home, index), replace(spec, seed=index), index)
        self.clock = VirtualTime()
        self.gpus, self.streams = [], []
        for index in range(count):
            gpu = VirtualGpu(state_path(home, index), self.clock)
            gpu.load_curves(CURVES)
            self.gpus.append(gpu)
            self.streams.append(VirtualStream(gpu, launch_queue=100))
            self.streams[-1].begin_pass(None)

    def send(self, sender, receiver, label, key=None):
        """A blocking transfer, as its two sides enqueue it."""
        self.receive(sender, receiver, label, key)
        self.receive(receiver, sender, label + 1, key)

    def receive(self, here, there, label, key=None):
        self.streams[here].wait(self.streams[here].post(there, label), key)


@pytest.fixture
def pipeline(tmp_path):
    return lambda count=2, spec=SPEC: Pipeline(tmp_path, count, spec)


def test_the_host_runs_on_and_the_stream_keeps_its_order(pipeline):
    job = pipeline(1)
    (stream,), begin_s = job.streams, job.clock()
    first = stream.mark()
    stream.work(FORWARD)
    between = stream.mark()
    stream.work(BACKWARD, factor=1.5)
    last = stream.mark()
    job.clock.pass_s(0.05)
    assert [stream.is_over(number) for number in (first, between, last)] == [True, True, False]
    job.clock.pass_s(0.1)
    assert stream.is_over(last)
    ends_s = [stream.ended_s(number) - begin_s for number in (first, between, last)]
    assert ends_s == pytest.approx([0.0, 0.03, 0.03 + 1.5 * 0.06])


def test_a_transfer_ends_when_both_have_come_to_it_and_its_own_time_has_passed(pipeline):
    job = pipeline()
    begin_s = job.clock()
    job.streams[0].work(BACKWARD)
    job.streams[1].work(FORWARD)
    job.send(0, 1, ACTIVATION, TRANSFER)
    marks = [stream.mark() for stream in job.streams]
    job.clock.pass_s(0.2)
    for stream, mark in zip(job.streams, marks, strict=True):
        assert stream.is_over(mark)
        assert stream.ended_s(mark) - begin_s == pytest.approx(0.062)


def test_a_posted_transfer_goes_on_beside_the_work(pipeline):
    job = pipeline()
    begin_s = job.clock()
    posted = [job.streams[0].post(1, ACTIVATION), job.streams[1].post(0, ACTIVATION + 1)]
    for stream, key, one in zip(job.streams, (FORWARD, BACKWARD), posted, strict=True):
        stream.work(key)
        stream.wait(one, TRANSFER)
    marks = [stream.mark() for stream in job.streams]
    job.clock.pass_s(0.2)
    assert all(map(VirtualStream.is_over, job.streams, marks))
    assert [stream.ended_s(mark) - begin_s for stream, mark in zip(job.streams, marks, strict=True)] == pytest.approx(
        [0.03, 0.06]
    )


def test_a_forecast_knows_of_clocks_that_are_under_way_and_of_other_gpus(pipeline):
    job = pipeline()
    begin_s = job.clock()
    job.gpus[0].lock_clock(SLOW)  # in 10 ms
    job.streams[0].work(FORWARD)
    job.send(0, 1, ACTIVATION)
    mark = job.streams[1].mark()
    with job.gpus[1].moment() as (moment, _):
        # A third of the work is done when the clock halves.
        assert moment.forecast_s(mark) - begin_s == pytest.approx(0.01 + 0.04)
    assert not job.streams[1].is_over(mark)  # a forecast changes nothing
    lonely = job.streams[1].post(0, GRADIENT)
    job.streams[1].wait(lonely)
    mark = job.streams[1].mark()
    with job.gpus[1].moment() as (moment, _):
        assert moment.forecast_s(mark) == float("inf")


def test_a_clock_request_delays_a_transfer_that_is_under_way(pipeline):
    job = pipeline(spec=replace(SPEC, request_stall_s=0.01))
    begin_s = job.clock()
    job.streams[0].work(FORWARD)
    job.send(0, 1, ACTIVATION)
    marks = [stream.mark() for stream in job.streams]
    job.clock.pass_s(0.025)
    job.gpus[1].lock_clock(SLOW)
    job.clock.pass_s(0.1)
    assert all(map(VirtualStream.is_over, job.streams, marks))
    ends_s = [stream.ended_s(mark) - begin_s for stream, mark in zip(job.streams, marks, strict=True)]
    assert ends_s == pytest.approx([0.03, 0.035])


def test_nobody_waits_for_a_gpu_whose_process_has_ended(pipeline):
    job = pipeline()
    job.receive(1, 0, ACTIVATION + 1)
    mark = job.streams[1].mark()
    job.clock.pass_s(1.0)
    assert not job.streams[1].is_over(mark)
    job.streams[0].close()
    job.clock.pass_s(0.01)
    assert job.streams[1].is_over(mark)


def test_a_pass_that_broke_off_upsets_no_other(pipeline):
    job = pipeline()
    job.receive(0, 1, ACTIVATION)  # the other side has raised before it came to this
    for stream in job.streams:
        stream.begin_pass(None)
    job.streams[0].work(FORWARD)
    job.send(0, 1, ACTIVATION)
    mark = job.streams[1].mark()
    job.clock.pass_s(0.1)
    assert job.streams[1].is_over(mark)


def enqueue_1f1b(job, stages, microbatches):
    """Enqueue each stage's 1F1B and return what makes its last mark."""
    for stage, stream in enumerate(job.streams):
        warm_up = min(stages - stage - 1, microbatches)
        order = ["F"] * warm_up
        order += ["F", "B"] * (microbatches - warm_up) + ["B"] * warm_up
        for kind in order:
            forward = kind == "F"
            source, target = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
            label = ACTIVATION if forward else GRADIENT
            if 0 <= source < stages:
                stream.wait(stream.post(source, label + 1))
            stream.work(FORWARD if forward else BACKWARD)
            if 0 <= target < stages:
                stream.post(target, label)  # no rendezvous: the textbook's DAG
    return [stream.mark() for stream in job.streams]


@settings(max_examples=20)
@given(looks=st.lists(st.tuples(st.integers(0, 3), st.floats(0.001, 0.4)), max_size=25))
def test_an_iteration_lasts_as_long_as_its_dag_whoever_looks_when(tmp_path_factory, looks):
    stages, microbatches = 4, 6
    job = Pipeline(tmp_path_factory.mktemp("job"), stages)
    begin_s = job.clock()
    marks = enqueue_1f1b(job, stages, microbatches)
    for index, seconds in looks:
        job.clock.pass_s(seconds)
        job.gpus[index].power_w()
    job.clock.pass_s(5.0)
    assert all(map(VirtualStream.is_over, job.streams, marks))
    dag = schedule_dag("1f1b", stages, microbatches)
    times_s = [0.03 if instruction.kind is Kind.FORWARD else 0.06 for instruction in dag.instructions]
    assert job.streams[0].ended_s(marks[0]) - begin_s == pytest.approx(dag.makespan(times_s), rel=1e-6)
