"""Instructions as operations, as rows of plan files, and as names."""

import pytest

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind

PLAIN = Instruction(2, Kind.BACKWARD, 5, 1)
JOINT = Instruction(0, Kind.FORWARD_BACKWARD, 6, 1, 4, 0)


@pytest.mark.parametrize("instruction", [PLAIN, JOINT])
def test_it_is_its_stage_s_operation(instruction: Instruction) -> None:
    assert Instruction.of(instruction.stage, instruction.operation) == instruction
    assert isinstance(instruction.operation, Operation)
    assert instruction.operation.microbatch == instruction.microbatch


@pytest.mark.parametrize(
    ("instruction", "row"),
    [(PLAIN, [2, "backward", 5, 1, 1200]), (JOINT, [0, "forward_backward", 6, 1, 1200, 4, 0])],
)
def test_a_row_of_a_plan_file_comes_back(instruction: Instruction, row: list[int | str]) -> None:
    assert instruction.to_row(1200) == row
    assert Instruction.from_row(row) == (instruction, 1200)


@pytest.mark.parametrize("row", [[], [0, "forward", 0, 0], [0, "sideways", 0, 0, 1410], ["x", "forward", 0, 0, 1410]])
def test_a_malformed_row_is_refused(row: list[int | str]) -> None:
    with pytest.raises(ValueError, match=r"not enough|not a valid Kind|invalid literal"):
        Instruction.from_row(row)


def test_people_read_both_halves_of_a_joint_instruction() -> None:
    assert PLAIN.label == "backward of micro-batch 5, chunk 1, stage 2"
    assert JOINT.label == "forward_backward of micro-batch 6, chunk 1 and micro-batch 4, chunk 0, stage 0"
