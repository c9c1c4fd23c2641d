"""The recorder on the host's clock, and its cost."""

import time
from statistics import median

import pytest

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import Recorder
from perseus_ds.profiling.timers import HostTimer

FORWARD = Operation(Kind.FORWARD, microbatch=0)
BACKWARD = Operation(Kind.BACKWARD, microbatch=0)
WAIT = Operation(Kind.EXCHANGE)


def run(recorder: Recorder, *operations: Operation, busy_s: float = 0.0) -> None:
    for operation in operations:
        recorder.operation_begin(operation)
        time.sleep(busy_s)
        recorder.operation_end(operation)


def test_an_iteration_comes_out_in_program_order_with_times_and_clocks() -> None:
    recorder = Recorder(HostTimer())
    before_s = time.monotonic()
    recorder.iteration_begin(IterationClocks(1410, (1410, 1200)), 7)
    run(recorder, FORWARD, WAIT, BACKWARD, busy_s=0.01)
    recorder.iteration_end()

    (iteration,) = recorder.finished()

    assert iteration.iteration == 7
    assert [timed.operation for timed in iteration.operations] == [FORWARD, WAIT, BACKWARD]
    assert [timed.frequency_mhz for timed in iteration.operations] == [1410, 0, 1200]
    assert before_s <= iteration.begin_s <= before_s + iteration.operations[-1].end_s
    assert iteration.end_s - iteration.begin_s >= iteration.operations[-1].end_s
    for timed, after in zip(iteration.operations, iteration.operations[1:], strict=False):
        assert timed.duration_s >= 0.01
        assert timed.end_s <= after.begin_s
    assert recorder.finished() == []


def test_each_instruction_that_ends_is_told_by_its_index_and_waits_are_not() -> None:
    ended: list[int] = []
    recorder = Recorder(HostTimer(), None, lambda token, index, at_s: ended.append(index))
    for _ in range(2):
        recorder.iteration_begin(IterationClocks(1410), 0)
        run(recorder, WAIT, FORWARD, WAIT, BACKWARD, WAIT)
        recorder.iteration_end()

    assert ended == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("expected", "followed"),
    [
        (0, ["ends 0", "ends 1", "ends 2"]),
        (2, ["begins 0", "begins 1", "ends 1", "ends 2"]),
        (3, ["begins 0", "begins 1", "begins 2", "ends 2"]),
    ],
)
def test_one_mark_of_an_instruction_is_followed_as_each_costs_the_device_some_time(
    expected: int, followed: list[str]
) -> None:
    class Timer(HostTimer):
        followed = 0

        def mark(self, followed: bool = False) -> float:
            self.followed += followed
            return super().mark()

    timer, told = Timer(), []
    recorder = Recorder(
        timer,
        None,
        lambda token, index, at_s: told.append(f"ends {index}"),
        lambda token, index, at_s: told.append(f"begins {index}"),
    )
    recorder.iteration_begin(IterationClocks(1410), 0, tuple(range(expected)))
    run(recorder, WAIT, FORWARD, BACKWARD, WAIT, FORWARD)
    recorder.iteration_end()

    assert told == followed
    assert timer.followed == len(followed) + 1, "and the iteration's end"


def test_an_evaluation_is_marked_and_an_iteration_left_by_an_exception_is_forgotten() -> None:
    recorder = Recorder(HostTimer())
    recorder.iteration_begin(IterationClocks(1410))
    run(recorder, FORWARD)
    recorder.iteration_end()
    recorder.iteration_begin(IterationClocks(1410), 4)
    recorder.operation_begin(FORWARD)
    recorder.iteration_begin(IterationClocks(1410), 5)
    run(recorder, FORWARD, BACKWARD)
    recorder.iteration_end()

    evaluation, training = recorder.finished()

    assert not evaluation.training
    assert (training.training, training.iteration) == (True, 5)
    assert len(training.operations) == 2


def test_operations_outside_an_iteration_are_not_noted() -> None:
    recorder = Recorder(HostTimer())
    run(recorder, FORWARD)
    recorder.iteration_end()

    assert recorder.finished() == []


@pytest.mark.parametrize("callback", [None, lambda *_: None])
def test_an_instruction_costs_less_than_20_microseconds(callback) -> None:
    recorder = Recorder(HostTimer(), None, callback)
    costs = []
    for _ in range(30):
        recorder.iteration_begin(IterationClocks(1410), 0)
        begin_s = time.perf_counter()
        for _ in range(50):
            run_one(recorder, FORWARD)
            run_one(recorder, BACKWARD)
        costs.append((time.perf_counter() - begin_s) / 100)
        recorder.iteration_end()

    assert median(costs) < 20e-6


def run_one(recorder: Recorder, operation: Operation) -> None:
    recorder.operation_begin(operation)
    recorder.operation_end(operation)
