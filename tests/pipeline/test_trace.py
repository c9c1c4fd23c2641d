"""Traces on their way to ``trace.json`` and back."""

import json
from dataclasses import replace

import pytest

from perseus_ds.pipeline.events import Direction, Operation, Transfer
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation

SEND, RECEIVE = Transfer(Direction.SEND, 2, "activation"), Transfer(Direction.RECEIVE, 0, "gradient")
TRACE = StageTrace(
    1,
    3,
    0.75,
    (
        TimedOperation(Operation(Kind.LOAD, 4), 0.0, 0.125),
        TimedOperation(Operation(Kind.FORWARD, 4, 2), 0.125, 0.25, 1410),
        TimedOperation(Operation(Kind.EXCHANGE, transfers=(SEND, RECEIVE)), 0.25, 0.5),
        TimedOperation(Operation(Kind.FORWARD_BACKWARD, 5, 1, (), 3, 0), 0.5, 0.625, 1200),
    ),
)


def test_a_trace_survives_its_file() -> None:
    assert StageTrace.from_json(json.loads(json.dumps(TRACE.to_json()))) == TRACE


def test_only_joint_instructions_name_their_backward() -> None:
    rows = TRACE.to_json()["operations"]

    assert rows[1] == {
        "kind": "forward",
        "microbatch": 4,
        "chunk": 2,
        "transfers": [],
        "begin_s": 0.125,
        "end_s": 0.25,
        "frequency_mhz": 1410,
    }
    assert rows[2]["transfers"] == [["send", 2, "activation"], ["receive", 0, "gradient"]]
    assert (rows[3]["backward_microbatch"], rows[3]["backward_chunk"]) == (3, 0)


def test_a_duration_is_from_begin_to_end() -> None:
    assert [timed.duration_s for timed in TRACE.operations] == pytest.approx([0.125, 0.125, 0.25, 0.125])


def test_sizes_of_micro_batches_are_kept_and_there_are_none_where_these_are_alike() -> None:
    uneven = replace(TRACE, sizes=((1.25, 0.75), (0.5, 1.5)))
    assert StageTrace.from_json(json.loads(json.dumps(uneven.to_json()))) == uneven
    assert "sizes" not in TRACE.to_json()
