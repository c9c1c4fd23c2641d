"""DAGs from traces: of a simulated rendezvous network, and of iterations that really ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Direction, Operation, Transfer
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.schedules import SCHEDULES, schedule_dag
from perseus_ds.pipeline.trace import StageTrace, TimedOperation

MEASURED = Path(__file__).parents[1] / "data" / "measured-gpt3-xl-a100.json"


def program(order: Sequence[Instruction], last: int) -> list[Operation]:
    """A stage's operations: a blocking receive before and a blocking send after each instruction."""
    operations = [Operation(Kind.LOAD)]
    for one in order:
        forward = one.kind is Kind.FORWARD
        step, tag = (1, "activation") if forward else (-1, "gradient")
        if 0 <= one.stage - step <= last:
            receive = Transfer(Direction.RECEIVE, one.stage - step, tag)
            operations.append(Operation(Kind.EXCHANGE, transfers=(receive,)))
        operations.append(Operation(Kind(one.kind.value), one.microbatch, one.chunk))
        if 0 <= one.stage + step <= last:
            send = Transfer(Direction.SEND, one.stage + step, tag)
            operations.append(Operation(Kind.EXCHANGE, transfers=(send,)))
    return [*operations, Operation(Kind.OPTIMIZER)]


def run_programs(programs: list[list[Operation]], times_s: dict[object, float], hop_s: float) -> list[StageTrace]:
    """Run all stages: an exchange ends ``hop_s`` after both sides have come to it."""
    clock = [0.0] * len(programs)
    position = [0] * len(programs)
    records: list[list[TimedOperation]] = [[] for _ in programs]

    def finish(stage: int, end_s: float) -> None:
        records[stage].append(TimedOperation(programs[stage][position[stage]], clock[stage], end_s))
        clock[stage], position[stage] = end_s, position[stage] + 1

    while any(at < len(operations) for at, operations in zip(position, programs, strict=True)):
        moved = False
        for stage, operations in enumerate(programs):
            if position[stage] == len(operations):
                continue
            one = operations[position[stage]]
            if one.kind is not Kind.EXCHANGE:
                keys = ((stage, one.kind, one.microbatch), (stage, one.kind), one.kind)
                finish(stage, clock[stage] + next(times_s[key] for key in keys if key in times_s))
                moved = True
                continue
            (mine,) = one.transfers
            at = position[mine.peer]
            theirs = programs[mine.peer][at].transfers if at < len(programs[mine.peer]) else ()
            if any(t.peer == stage and t.tag == mine.tag and t.direction is not mine.direction for t in theirs):
                end_s = max(clock[stage], clock[mine.peer]) + hop_s
                finish(stage, end_s)
                finish(mine.peer, end_s)
                moved = True
        assert moved, "deadlock"
    return [StageTrace(stage, 0, max(clock), tuple(rows)) for stage, rows in enumerate(records)]


@pytest.fixture
def traces() -> list[StageTrace]:
    random = np.random.default_rng(7)
    orders = SCHEDULES["gpipe"](3, 4, 1)
    times: dict[object, float] = {Kind.LOAD: 0.01, Kind.OPTIMIZER: 0.02}
    for order in orders:
        for one in order:
            times.setdefault((one.stage, Kind(one.kind.value)), random.uniform(0.05, 0.15))
    return run_programs([program(order, 2) for order in orders], times, hop_s=0.004)


def durations(traces: Sequence[StageTrace], instructions: Sequence[Instruction]) -> list[float]:
    measured = {
        (trace.stage, t.operation.kind.value, t.operation.microbatch): t.duration_s
        for trace in traces
        for t in trace.operations
    }
    return [measured[one.stage, one.kind.value, one.microbatch] for one in instructions]


def test_makespan_is_the_measured_iteration(traces: list[StageTrace]) -> None:
    dag = dag_from_traces(traces)
    assert dag.constants[-1].label == "tail of the iteration"
    assert dag.constants[-1].duration_s == pytest.approx(0, abs=1e-9)
    assert dag.makespan(durations(traces, dag.instructions)) == pytest.approx(traces[0].iteration_time_s)


def test_an_instruction_that_is_longer_at_its_position_is_so_at_every_clock() -> None:
    orders = SCHEDULES["gpipe"](3, 4, 1)
    programs = [program(order, 2) for order in orders]
    times: dict[object, float] = {Kind.LOAD: 0.0, Kind.OPTIMIZER: 0.0, Kind.FORWARD: 0.1, Kind.BACKWARD: 0.2}
    beside = {(stage, Kind.BACKWARD, 3): 0.216 for stage in range(3)}

    dag = dag_from_traces(run_programs(programs, times | beside, hop_s=0.004))

    slow = {Kind.FORWARD: 0.15, Kind.BACKWARD: 0.3}
    truth = run_programs(programs, times | slow | dict.fromkeys(beside, 0.316), hop_s=0.004)
    assert sum(one.label.startswith("extra time of ") for one in dag.constants) == 3
    assert dag.makespan([slow[one.kind] for one in dag.instructions]) == pytest.approx(truth[0].iteration_time_s)


def test_other_durations_are_predicted_without_running_them(traces: list[StageTrace]) -> None:
    dag = dag_from_traces(traces)
    slower = [
        1.3 * time if one.stage == 1 else time
        for one, time in zip(dag.instructions, durations(traces, dag.instructions), strict=True)
    ]
    times: dict[object, float] = {Kind.LOAD: 0.01, Kind.OPTIMIZER: 0.02}
    for one, time in zip(dag.instructions, slower, strict=True):
        times[one.stage, Kind(one.kind.value), one.microbatch] = time
    again = run_programs([[t.operation for t in trace.operations] for trace in traces], times, hop_s=0.004)
    assert dag.makespan(slower) == pytest.approx(again[0].iteration_time_s)


def test_without_a_common_clock_the_dag_is_the_same(traces: list[StageTrace]) -> None:
    shifted = [
        replace(
            trace,
            operations=tuple(
                replace(t, begin_s=t.begin_s + trace.stage, end_s=t.end_s + trace.stage) for t in trace.operations
            ),
        )
        for trace in traces
    ]
    times = [0.1] * 24
    plain, moved = dag_from_traces(traces), dag_from_traces(shifted)
    first = [c.duration_s for c in moved.constants if c.label.startswith("overhead")]
    assert sorted(first) == pytest.approx([1, 2])  # only the wait before each stage's first operation
    assert moved.makespan(times) >= plain.makespan(times)


def test_what_is_slower_than_the_dag_becomes_the_tail(traces: list[StageTrace]) -> None:
    longer = [replace(trace, iteration_time_s=trace.iteration_time_s + 0.5) for trace in traces]
    assert dag_from_traces(longer).constants[-1].duration_s == pytest.approx(0.5)


def test_posts_and_waits_overlap_with_computation() -> None:
    send, receive = (Transfer(Direction.SEND, 1, "activation"), Transfer(Direction.RECEIVE, 0, "activation"))
    first = [
        TimedOperation(Operation(Kind.FORWARD, 0), 0.0, 1.0),
        TimedOperation(Operation(Kind.POST, transfers=(send,)), 1.0, 1.0),
        TimedOperation(Operation(Kind.FORWARD, 1), 1.0, 2.0),
        TimedOperation(Operation(Kind.WAIT, transfers=(send,)), 2.0, 2.0),
    ]
    second = [
        TimedOperation(Operation(Kind.POST, transfers=(receive,)), 0.0, 0.0),
        TimedOperation(Operation(Kind.WAIT, transfers=(receive,)), 0.0, 1.0),
        TimedOperation(Operation(Kind.FORWARD, 0), 1.0, 2.0),
    ]
    dag = dag_from_traces([StageTrace(0, 0, 2.0, tuple(first)), StageTrace(1, 0, 2.0, tuple(second))])
    assert dag.makespan([1.0, 1.0, 1.0]) == pytest.approx(2.0)
    assert dag.makespan([1.0, 5.0, 1.0]) == pytest.approx(6.0)
    assert dag.makespan([1.0, 1.0, 3.0]) == pytest.approx(4.0)


def test_a_lost_send_is_named(traces: list[StageTrace]) -> None:
    rest = tuple(
        t for t in traces[0].operations if not any(x.direction is Direction.SEND for x in t.operation.transfers)
    )
    with pytest.raises(PerseusError, match="0 sends but 4 receives of activation from stage 0 to stage 1"):
        dag_from_traces([replace(traces[0], operations=rest), *traces[1:]])


@pytest.mark.parametrize("index", [0, 6, 12, 18])
def test_measured_iterations_lie_a_constant_share_above_the_bare_dag(index: int) -> None:
    """GPT-3 XL, 4 stages, 128 micro-batches, 19 plans that ran on A100s: 1.4 to 1.6 % above, whatever the plan."""
    stages = json.loads(MEASURED.read_text())[index]["stages"]
    dag = schedule_dag("1f1b", 4, 128)
    times = [stages[one.stage][f"{one.kind.value}_time_s"][one.microbatch] for one in dag.instructions]
    measured_s = float(np.median([stage["iteration_time_s"][-1] for stage in stages]))
    assert 1.014 < measured_s / dag.makespan(times) < 1.016


def constants(traces: Sequence[StageTrace]) -> dict[str, float]:
    return {constant.label: constant.duration_s for constant in dag_from_traces(traces).constants}


def stage(number: int, *rows: tuple[Operation, float, float]) -> StageTrace:
    return StageTrace(number, 0, 10.0, tuple(TimedOperation(*row) for row in rows))


def test_a_collective_takes_as_long_as_where_nobody_was_waited_for() -> None:
    forward = Operation(Kind.FORWARD, 0)
    early = stage(0, (forward, 0.0, 1.0), (Operation(Kind.REDUCE), 1.0, 4.0), (Operation(Kind.OPTIMIZER), 4.0, 4.5))
    late = stage(1, (forward, 0.0, 3.5), (Operation(Kind.REDUCE), 3.5, 4.0), (Operation(Kind.OPTIMIZER), 4.0, 4.3))

    found = constants([early, late])

    assert found["reduce of stage 0"] == found["reduce of stage 1"] == pytest.approx(0.5)
    assert found["optimizer of stage 0"] == found["optimizer of stage 1"] == pytest.approx(0.3)


def test_a_transfer_takes_as_long_as_the_side_that_came_later_saw_it_and_the_median_of_these() -> None:
    send, receive = Transfer(Direction.SEND, 1, "activation"), Transfer(Direction.RECEIVE, 0, "activation")
    blocked_s = [(0.9, 0.1), (0.2, 0.7), (0.3, 0.35)]  # of sender and receiver, three times
    sides: tuple[list, list] = ([(Operation(Kind.FORWARD, 0), 0.0, 1.0)], [])
    for number, both_s in enumerate(blocked_s, start=1):
        for rows, transfer, took_s in zip(sides, (send, receive), both_s, strict=True):
            rows.append((Operation(Kind.EXCHANGE, transfers=(transfer,)), 2.0 * number - took_s, 2.0 * number))
    sides[1].append((Operation(Kind.FORWARD, 0), 6.0, 7.0))

    found = constants([stage(1, *sides[1]), stage(0, *sides[0])])

    hops_s = [found[f"activation {number} from stage 0 to 1"] for number in range(3)]
    assert hops_s == pytest.approx([0.2] * 3)


def test_in_a_joint_exchange_both_sides_may_wait_for_a_third_so_the_shortest_counts() -> None:
    there, back = Transfer(Direction.SEND, 1, "activation"), Transfer(Direction.RECEIVE, 1, "gradient")
    ours = Operation(Kind.EXCHANGE, transfers=(there, back))
    theirs = Operation(
        Kind.EXCHANGE, transfers=(Transfer(Direction.RECEIVE, 0, "activation"), Transfer(Direction.SEND, 0, "gradient"))
    )
    forward, backward = Operation(Kind.FORWARD, 0), Operation(Kind.BACKWARD, 0)
    first = stage(0, (forward, 0.0, 1.0), (ours, 1.0, 1.8), (ours, 3.0, 3.3), (ours, 4.0, 4.6), (backward, 5.0, 6.0))
    second = stage(
        1, (forward, 0.0, 1.0), (theirs, 1.0, 1.7), (theirs, 3.0, 3.4), (theirs, 4.0, 4.5), (backward, 5.0, 6.0)
    )

    found = constants([first, second])

    for number in range(3):
        assert found[f"activation {number} from stage 0 to 1"] == pytest.approx(0.3)
        assert found[f"gradient {number} from stage 1 to 0"] == pytest.approx(0.3)


def test_the_time_between_operations_is_an_overhead_and_overlaps_are_none() -> None:
    load, forward, backward = Operation(Kind.LOAD, 0), Operation(Kind.FORWARD, 0), Operation(Kind.BACKWARD, 0)
    trace = stage(0, (load, 0.25, 0.5), (forward, 0.4, 1.0), (backward, 1.125, 2.0))

    dag = dag_from_traces([trace])

    labels = [(constant.label, constant.duration_s) for constant in dag.constants]
    assert labels[:3] == [("overhead of stage 0", 0.25), ("load of stage 0", 0.25), ("overhead of stage 0", 0.125)]
    assert labels[3:] == [("tail of the iteration", pytest.approx(10.0 - (0.25 + 0.25 + 0.6 + 0.125 + 0.875)))]
    assert dag.makespan([0.6, 0.875]) == pytest.approx(10.0)


def test_an_iteration_shorter_than_its_dag_has_no_tail() -> None:
    trace = replace(stage(0, (Operation(Kind.FORWARD, 0), 0.0, 1.0)), iteration_time_s=0.5)

    assert constants([trace]) == {"tail of the iteration": 0.0}


def test_a_posted_transfer_takes_what_its_wait_was_blocked_and_waits_are_for_the_oldest_post() -> None:
    send, receive = Transfer(Direction.SEND, 1, "activation"), Transfer(Direction.RECEIVE, 0, "activation")

    def post(transfer: Transfer) -> Operation:
        return Operation(Kind.POST, transfers=(transfer,))

    def wait(transfer: Transfer) -> Operation:
        return Operation(Kind.WAIT, transfers=(transfer,))

    first = stage(
        0,
        (Operation(Kind.FORWARD, 0), 0.0, 1.0),
        (post(send), 1.0, 1.0),
        (post(send), 1.0, 1.0),
        (wait(send), 1.0, 1.5),
        (wait(send), 1.5, 1.6),
    )
    second = stage(
        1,
        (post(receive), 0.0, 0.0),
        (wait(receive), 1.0, 1.2),
        (post(receive), 1.2, 1.2),
        (wait(receive), 1.2, 1.8),
        (Operation(Kind.FORWARD, 0), 1.8, 2.8),
    )

    found = constants([first, second])

    # The sender was blocked for 0.5 and 0.1 s, the receiver for 0.2 and 0.6 s.
    assert found["activation 0 from stage 0 to 1"] == pytest.approx((0.2 + 0.1) / 2)


def test_transfers_that_work_hides_do_not_tell_how_long_those_take_that_nothing_hides() -> None:
    """An interleaved schedule exchanges while it fills the pipeline, and overlaps from then on."""
    send, receive = Transfer(Direction.SEND, 1, "activation"), Transfer(Direction.RECEIVE, 0, "activation")
    forward, backward = Operation(Kind.FORWARD, 0), Operation(Kind.BACKWARD, 0)
    first = stage(
        0,
        (forward, 0.0, 1.0),
        (Operation(Kind.EXCHANGE, transfers=(send,)), 1.0, 1.3),
        (Operation(Kind.POST, transfers=(send,)), 1.3, 1.3),
        (backward, 1.3, 2.3),
        (Operation(Kind.WAIT, transfers=(send,)), 2.3, 2.3),
    )
    second = stage(
        1,
        (Operation(Kind.EXCHANGE, transfers=(receive,)), 0.0, 1.3),
        (Operation(Kind.POST, transfers=(receive,)), 1.3, 1.3),
        (forward, 1.3, 2.3),
        (Operation(Kind.WAIT, transfers=(receive,)), 2.3, 2.3),
        (backward, 2.3, 3.3),
    )

    found = constants([first, second])

    assert [found[f"activation {number} from stage 0 to 1"] for number in range(2)] == pytest.approx([0.3, 0.3])
