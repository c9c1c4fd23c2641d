"""A listener that writes down what it hears, and the text grid of it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from perseus_ds.pipeline.events import Direction, Operation, Topology
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind

SHORT = {
    Kind.LOAD: "load",
    Kind.REDUCE: "reduce",
    Kind.OPTIMIZER: "optimizer",
    Kind.EXCHANGE: "",
    Kind.POST: "post:",
    Kind.WAIT: "wait:",
}


class Spy:
    """Remembers every event; an operation as a short word, such as ``F0``, ``B2.1`` or ``send-activation>1``."""

    def __init__(self) -> None:
        self.sections: list[object] = []
        self.iterations: list[dict] = []
        self.checkpoints: list[tuple[str, str]] = []
        self.was_unhooked = False

    def checkpoint_saved(self, directory: str) -> None:
        self.checkpoints.append(("saved", directory))

    def checkpoint_loaded(self, directory: str) -> None:
        self.checkpoints.append(("loaded", directory))

    def framework_configured(self, section: object, source: str) -> None:
        self.sections.append([section, source])

    def iteration_begin(self, topology: Topology, microbatches: int, training: bool) -> None:
        self.iterations.append(
            {"topology": asdict(topology), "microbatches": microbatches, "training": training, "words": []}
        )
        self.open_operation: Operation | None = None

    def operation_begin(self, operation: Operation) -> None:
        assert self.open_operation is None, "operations never nest"
        self.open_operation = operation

    def operation_end(self, operation: Operation) -> None:
        assert self.open_operation is operation
        self.open_operation = None
        self.iterations[-1]["words"].append(word(operation))

    def unhooked(self) -> None:
        self.was_unhooked = True

    def iteration_end(self) -> None:
        self.iterations[-1]["ended"] = True

    def take(self) -> list[dict]:
        """Return the iterations so far and forget them."""
        taken, self.iterations = self.iterations, []
        return taken


def word(operation: Operation) -> str:
    if operation.kind in (Kind.FORWARD, Kind.BACKWARD):
        return instruction_word(operation.kind.value, operation.microbatch, operation.chunk)
    number = "" if operation.microbatch < 0 else str(operation.microbatch)
    transfers = "+".join(
        f"{one.direction.value}-{one.tag}{'>' if one.direction is Direction.SEND else '<'}{one.peer}"
        for one in operation.transfers
    )
    return f"{SHORT[operation.kind]}{number}{transfers}"


def instruction_word(kind: str, microbatch: int, chunk: int) -> str:
    return f"{kind[0].upper()}{microbatch}{f'.{chunk}' if chunk else ''}"


def instructions(words: Iterable[str]) -> list[str]:
    """Return the forwards and backwards among the words."""
    return [one for one in words if one[0] in "FB"]


def grid(rows: Sequence[Iterable[str]]) -> str:
    """Return one text line per stage."""
    return "\n".join(f"stage {stage}: {' '.join(row)}" for stage, row in enumerate(rows))


def expected_grid(schedule: Sequence[Sequence[Instruction]]) -> str:
    """Return the grid of a generated schedule."""
    return grid([[instruction_word(one.kind.value, one.microbatch, one.chunk) for one in row] for row in schedule])


def write(directory: Path, rank: int, found: dict) -> None:
    (directory / f"rank{rank}.json").write_text(json.dumps(found))


def read(directory: Path) -> list[dict]:
    """Return what all ranks wrote, by rank."""
    paths = sorted(directory.glob("rank*.json"), key=lambda path: int(path.stem[4:]))
    return [json.loads(path.read_text()) for path in paths]
