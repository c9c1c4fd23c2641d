"""What each kind of operation is."""

from perseus_ds.pipeline.kinds import Kind


def those_that(predicate: str) -> set[str]:
    return {kind.value for kind in Kind if getattr(kind, predicate)}


def test_what_computes_is_an_instruction_and_what_moves_tensors_is_communication() -> None:
    halves = {"input_gradient", "weight_gradient"}

    assert those_that("is_instruction") == {"forward", "backward", "forward_backward"} | halves
    assert those_that("is_communication") == {"exchange", "post", "wait"}
    assert those_that("is_joint") == {"forward_backward"}
    assert those_that("computes_forward") == {"forward", "forward_backward"}
    assert those_that("computes_backward") == {"backward", "forward_backward"} | halves
