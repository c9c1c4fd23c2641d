"""Clocks follow the device, however far the host is ahead: between instructions, iterations and evaluations."""

import math
from collections import defaultdict, deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import SteppedStream

from perseus_ds.device.pending import PendingRequests
from perseus_ds.device.protocol import Request
from perseus_ds.pipeline.clocks import UNLOCKED, IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import IterationToken, RecordedIteration, Recorder, Rest
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.runtime.late_clocks import late_switches

FORWARD, WAIT = Operation(Kind.FORWARD), Operation(Kind.EXCHANGE)
CLOCKS_MHZ = (1400, 1300, 1200, 1100)


def controller(asked_mhz: list[int]) -> FrequencyController:
    """Of a GPU whose clocks come at once."""
    return FrequencyController(lambda mhz, _: asked_mhz.append(mhz), lambda _: 0.0)


class Job:
    """A host that enqueues iterations on a stream, and the clock that each kernel ran at."""

    def __init__(self) -> None:
        self.stream = SteppedStream()
        self.asked_mhz: list[int] = []
        self.ran_mhz: list[tuple[int | None, int]] = []
        frequencies = controller(self.asked_mhz)
        self.recorder = Recorder(
            self.stream, frequencies.begin, frequencies.instruction_ended, frequencies.instruction_began
        )
        self.iterations = 0

    def begin(self, clocks: IterationClocks, training: bool) -> int | None:
        number = self.iterations if training else None
        self.iterations += training
        self.recorder.iteration_begin(clocks, number)
        return number

    def instruction(self, number: int | None) -> None:
        self.recorder.operation_begin(WAIT)
        self.recorder.operation_end(WAIT)
        self.recorder.operation_begin(FORWARD)
        self.stream.kernel(lambda: self.ran_mhz.append((number, self.asked_mhz[-1])))
        self.recorder.operation_end(FORWARD)


def labels(done: Sequence[RecordedIteration]) -> list[tuple[int | None, int]]:
    """Which clock each instruction is said to have run at."""
    return [
        (iteration.iteration if iteration.training else None, timed.frequency_mhz)
        for iteration in done
        for timed in iteration.operations
        if timed.operation is FORWARD
    ]


plans = st.lists(st.sampled_from(CLOCKS_MHZ), max_size=6).map(tuple)
iterations = st.tuples(
    plans,
    st.sampled_from(["training", "evaluation", "exception"]),
    st.lists(st.sampled_from([0, 1, 3, 50]), min_size=1, max_size=8),
)


@given(st.lists(iterations, min_size=1, max_size=6))
def test_every_instruction_runs_at_the_clock_it_is_recorded_with_wherever_the_host_is(history):
    job, lost = Job(), set()
    for planned, what, aheads in history:
        training = what != "evaluation"
        number = job.begin(IterationClocks(1410, planned if training else ()), training)
        for ahead in aheads:
            job.stream.run_until_behind_by(ahead)
            job.instruction(number)
        if what == "exception":
            lost.add(number)
        else:
            job.recorder.iteration_end()
    job.stream.run_until_behind_by(0)

    done = job.recorder.finished()

    assert labels(done) == [ran for ran in job.ran_mhz if ran[0] not in lost]
    assert sum(late_switches(iteration, lambda _: 0.0) for iteration in done) == 0


@pytest.mark.parametrize("ahead", [0, 1, 3, 50])
def test_nothing_is_asked_for_before_the_device_has_come_to_it(ahead):
    job = Job()
    for planned in [(1400, 1300), (1200, 1100)]:
        number = job.begin(IterationClocks(1410, planned), training=True)
        for _ in planned:
            job.stream.run_until_behind_by(ahead)
            job.instruction(number)
        job.recorder.iteration_end()
    job.begin(IterationClocks(1410), training=False)
    asked = []
    while job.stream.queue:
        job.stream.step()
        asked.append(list(job.asked_mhz))

    everything = [1400, 1300, 1400, 1200, 1100, 1200, 1410]
    assert job.asked_mhz == everything
    assert all(everything[: len(some)] == some for some in asked)
    assert job.ran_mhz == [(0, 1400), (0, 1300), (1, 1200), (1, 1100)]


def test_an_iteration_is_handed_out_once_its_last_clock_has_been_asked_for():
    job = Job()
    job.begin(IterationClocks(1410, (1400,)), training=True)
    job.instruction(0)
    job.recorder.iteration_end()
    for mark in range(1, job.stream.marks + 1):
        job.stream.reached[mark] = float(mark)  # the device is there, who follows it is not yet
    assert job.recorder.finished() == []
    job.stream.run_until_behind_by(0)
    assert [one.iteration for one in job.recorder.finished()] == [0]


def test_every_new_clock_is_asked_for_in_its_turn():
    """Fails where the controller never goes on from the first clock."""
    asked: list[int] = []
    frequencies, token = controller(asked), IterationToken(IterationClocks(1410, (1400, 1300, 1200)), 0)
    frequencies.begin(token, 0.0)
    for index in range(5):
        frequencies.instruction_ended(token, index, 0.0)
    assert asked == [1400, 1300, 1200, 1400, 1410, 1410]
    assert list(token.requested_s) == [0, 1, 2, 3, 4]
    assert sorted(token.requested_s.values()) == list(token.requested_s.values())


def test_a_clock_that_stays_is_not_counted_as_asked_for_but_is_asked_for_again():
    """The keeper drops an equal request, but takes it where it could not take the one before."""
    asked: list[int] = []
    frequencies, token = controller(asked), IterationToken(IterationClocks(1410, (1400, 1400)), 0)
    frequencies.begin(token, 0.0)
    frequencies.instruction_ended(token, 0, 0.0)
    assert asked == [1400, 1400]
    assert list(token.requested_s) == [0]


def test_without_a_plan_nothing_is_asked_for_until_a_plan_has_been_and_then_the_lock_is_released_once():
    asked: list[int] = []
    frequencies = controller(asked)
    plan, free = IterationClocks(1410, (1300, 1200)), IterationClocks(1410, locked=False)
    requested = []
    for clocks in (free, plan, free):
        token = IterationToken(clocks, 0)
        frequencies.begin(token, 0.0)
        for index in range(2):
            frequencies.instruction_ended(token, index, 0.0)
        requested.append(list(token.requested_s))
    assert asked == [UNLOCKED] * 3 + [1300, 1200, 1300] + [UNLOCKED] * 3
    assert requested == [[], [0, 1, 2], [0]]


class Gpu:
    """A GPU and its keeper in time of their own: a clock comes one latency after the driver was asked."""

    def __init__(self, latency_s: float) -> None:
        self.now_s, self.mhz, self.latency_s = 0.0, 1400, latency_s
        self.pending = PendingRequests()
        self.coming: deque[tuple[float, int]] = deque()
        self.controller = FrequencyController(
            lambda mhz, due_s: self.pending.add(Request(mhz, self.now_s, due_s)),
            lambda _: latency_s,
            lambda: self.now_s,
        )

    def run(self, until_s: float = math.inf, work: float = 0.0) -> dict[int, float]:
        """Go on to a time, or to the end of some work in clock cycles; return the seconds spent at each clock."""
        spent_s: dict[int, float] = defaultdict(float)
        while self.now_s < until_s and (work > 1e-9 or until_s < math.inf):
            coming_s = self.coming[0][0] if self.coming else math.inf
            end_s = self.now_s + work / self.mhz if work else math.inf
            next_s = min(until_s, end_s, max(self.now_s, self.pending.due_s), coming_s)
            spent_s[self.mhz] += next_s - self.now_s
            work = max(0.0, work - (next_s - self.now_s) * self.mhz)
            self.now_s = next_s
            if request := self.pending.due(next_s):
                self.pending.settle()
                self.coming.append((next_s + self.latency_s, request.mhz))
            if self.coming and self.coming[0][0] <= next_s:
                self.mhz = self.coming.popleft()[1]
        return spent_s


def shares_on_time(gpu: Gpu, iterations: int, planned: Sequence[int], lengths_s: Sequence[float], waits_s=()) -> list:
    """Return, for each iteration, the share of each instruction's time at its planned clock."""
    shares: list[list[float]] = []
    begins_s: list[float] = []
    for number in range(iterations):
        token = IterationToken(IterationClocks(1400, tuple(planned)), number, tuple(begins_s))
        gpu.controller.begin(token, gpu.now_s)
        begins_s, mine = [], []
        for index, (mhz, length_s) in enumerate(zip(planned, lengths_s, strict=True)):
            gpu.run(gpu.now_s + (waits_s[index] if waits_s else 0.0))
            begins_s.append(gpu.now_s)
            gpu.controller.instruction_began(token, index, gpu.now_s)
            spent_s = gpu.run(work=mhz * length_s)
            if not token.expects(index + 1):
                gpu.controller.instruction_ended(token, index, gpu.now_s)
            mine.append(spent_s[mhz] / sum(spent_s.values()))
        shares.append(mine)
        gpu.run(gpu.now_s + 0.2)  # the optimizer
    return shares


UP_AND_DOWN = (1400, 1100, 1300, 1200, 1400, 1100, 1100, 1300)


@pytest.mark.parametrize("latency_s", [0.005, 0.01, 0.02])
def test_once_the_begins_are_known_clocks_are_there_when_their_instructions_begin(latency_s):
    first, *_, last = shares_on_time(Gpu(latency_s), 12, UP_AND_DOWN, (0.02, 0.04) * 4)
    assert min(first) < 1 - latency_s / 0.05  # asked for when the instruction before has ended, they are not
    assert min(last) > 0.99


def test_where_a_latency_is_longer_than_an_instruction_several_requests_are_under_way():
    """The first ones of an iteration cannot be asked for before it."""
    first, *_, last = shares_on_time(Gpu(0.05), 12, UP_AND_DOWN, (0.02,) * 8)
    assert max(first[1:]) < 0.5
    assert min(last[3:]) > 0.999


@pytest.mark.parametrize("rest_mhz", [0, 800])
def test_clocks_that_take_long_are_asked_for_in_the_wait_before_the_first_instruction(rest_mhz):
    """As stages wait that come late in the pipeline: asked for as the first one begins, they would be 30 ms late."""
    gpu, clocks = Gpu(0.05), IterationClocks(1400, (1400, 1100, 1300, 1200), rest_mhz=rest_mhz)
    token = IterationToken(clocks, 3, (0.5, 0.52, 0.54, 0.56), rests_until_s=0.3 if rest_mhz else 0.0)
    gpu.controller.begin(token, 0.0)
    gpu.run(0.5)
    for index, mhz in enumerate(clocks.planned_mhz):
        gpu.controller.instruction_began(token, index, gpu.now_s)
        spent_s = gpu.run(work=mhz * 0.02)
        assert spent_s[mhz] > 0.99 * sum(spent_s.values())
    assert sorted(token.requested_s.values()) == list(token.requested_s.values())


@pytest.mark.parametrize("aim_s", [-0.003, 0.004])
def test_a_clock_comes_as_much_before_or_after_its_instruction_s_begin_as_planned(aim_s):
    gpu, clocks = Gpu(0.01), IterationClocks(1400, (1400, 1100, 1300), aims_s=(0.0, aim_s, 0.0))
    token = IterationToken(clocks, 3, (0.0, 0.05, 0.1))
    gpu.controller.begin(token, 0.0)
    gpu.controller.instruction_began(token, 0, 0.0)
    first_s = gpu.run(0.05)
    gpu.controller.instruction_began(token, 1, gpu.now_s)
    second_s = gpu.run(0.1)
    assert first_s[1100] == pytest.approx(max(0.0, -aim_s))
    assert second_s[1400] == pytest.approx(max(0.0, aim_s))
    gpu.controller.instruction_began(token, 2, gpu.now_s)
    assert gpu.run(0.15)[1300] == pytest.approx(0.05)


def test_the_clock_is_there_when_a_wait_ends_and_not_before():
    gpu = Gpu(0.01)
    waits_s = (0.0, 0.05, 0.0, 0.03, 0.0, 0.0, 0.0, 0.2)
    *_, last = shares_on_time(gpu, 8, UP_AND_DOWN, (0.03,) * 8, waits_s)
    assert min(last) > 0.97


def test_an_instruction_that_begins_earlier_than_expected_has_its_clock_asked_for_at_once():
    gpu = Gpu(0.01)
    token = IterationToken(IterationClocks(1400, (1400, 1100, 1300)), 0, (0.0, 0.5, 1.0))
    gpu.controller.begin(token, 0.0)
    gpu.controller.instruction_began(token, 0, 0.0)
    gpu.run(0.1)
    gpu.controller.instruction_began(token, 1, 0.1)
    gpu.run(0.1 + 0.011)
    assert gpu.mhz == 1100
    gpu.run(0.6 + 0.001)  # and the clock after it comes as much earlier
    assert gpu.mhz == 1300


def test_a_clock_that_is_asked_for_early_is_asked_for_as_the_instruction_before_begins():
    asked: list[tuple[int, float]] = []
    now_s = 10.0
    frequencies = FrequencyController(lambda mhz, due_s: asked.append((mhz, due_s)), lambda _: 0.02, lambda: now_s)
    token = IterationToken(IterationClocks(1410, (1400, 1385, 1400), asks_early=True), 7, (0.0, 0.0, 0.0))
    frequencies.begin(token, now_s)
    asked.clear()
    for index in range(3):
        frequencies.instruction_began(token, index, now_s)
        now_s += 0.1
    assert [mhz for mhz, _ in asked[:2]] == [1385, 1400]
    assert [due_s for _, due_s in asked[:2]] == pytest.approx([10.0, 10.1], abs=0.001)


@pytest.mark.parametrize("wait_s", [0.5, 0.2])
def test_a_gpu_rests_in_its_first_wait_and_has_its_clock_back_before_it_begins(wait_s):
    """The second wait is shorter than expected: the clock is asked for at once."""
    gpu = Gpu(0.01)
    clocks = IterationClocks(1400, (1400, 1100), rest_mhz=800)
    token = IterationToken(clocks, 3, (0.5, 0.6), rests_until_s=0.43)
    gpu.controller.begin(token, 0.0)
    gpu.run(0.1)
    assert gpu.mhz == 800
    assert token.rest == Rest(0.0, 800)
    gpu.run(wait_s)
    gpu.controller.instruction_began(token, 0, gpu.now_s)
    gpu.run(wait_s + 0.011)
    assert gpu.mhz == 1400
    assert token.requested_s[0] == pytest.approx(min(0.43, wait_s))


def test_without_a_rest_the_first_clock_is_asked_for_though_the_device_s_time_is_ahead_of_the_host_s():
    asked: list[tuple[int, float]] = []
    frequencies = FrequencyController(lambda mhz, due_s: asked.append((mhz, due_s)), lambda _: 0.01, lambda: 10.0)
    frequencies.begin(IterationToken(IterationClocks(1400, (1400, 1100)), 3, (0.5, 0.6)), 10.001)
    assert asked == [(1400, 0.0)]


def test_a_host_that_hears_of_the_begin_when_the_rest_would_be_over_asks_for_the_first_clock():
    asked: list[tuple[int, float]] = []
    frequencies = FrequencyController(lambda mhz, due_s: asked.append((mhz, due_s)), lambda _: 0.01, lambda: 10.5)
    token = IterationToken(IterationClocks(1400, (1400, 1100), rest_mhz=800), 3, (0.5, 0.6), rests_until_s=0.43)
    frequencies.begin(token, 10.0)
    assert asked == [(1400, 0.0)]
    assert token.rest is None
