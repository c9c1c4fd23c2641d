"""Joint and half instructions on their whole way: recorder, profile, DAG, frontier, plan, clocks.

Two stages run on made-up GPUs whose times and powers follow the clock by formulas. What the plan predicts is then run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perseus_ds.config import ProfilingConfig
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.switching import SwitchCost
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Direction, Operation, Transfer
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.recorder import RecordedIteration, Recorder
from perseus_ds.profiling.spans import spans_of
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, Profile
from perseus_ds.runtime.measurement import median_trace

CLOCKS_MHZ = (1400, 1200, 1000, 800)
WAITING_W = 60.0
LASTS_S = {
    Kind.FORWARD: 0.10,
    Kind.BACKWARD: 0.20,
    Kind.INPUT_GRADIENT: 0.11,
    Kind.WEIGHT_GRADIENT: 0.09,
    Kind.FORWARD_BACKWARD: 0.26,
}
COUNTER_S = 0.02


def exchange(direction: Direction, tag: str) -> Operation:
    stage = int((direction is Direction.RECEIVE) == (tag == "activation"))
    return Operation(Kind.EXCHANGE, transfers=(Transfer(direction, 1 - stage, tag),))


def forward(microbatch: int) -> Operation:
    return Operation(Kind.FORWARD, microbatch)


GIVE, TAKE = (
    {tag: exchange(side, tag) for tag in ("activation", "gradient")} for side in (Direction.SEND, Direction.RECEIVE)
)
JOINT = Operation(Kind.FORWARD_BACKWARD, 2, backward_microbatch=0, backward_chunk=0)
PROGRAM = (
    (
        *(forward(0), GIVE["activation"], forward(1), GIVE["activation"]),
        *(TAKE["gradient"], JOINT, GIVE["activation"]),
        *(TAKE["gradient"], Operation(Kind.INPUT_GRADIENT, 1), Operation(Kind.WEIGHT_GRADIENT, 1)),
        *(TAKE["gradient"], Operation(Kind.BACKWARD, 2)),
    ),
    (
        *(TAKE["activation"], forward(0), TAKE["activation"]),
        *(Operation(Kind.INPUT_GRADIENT, 0), GIVE["gradient"], Operation(Kind.WEIGHT_GRADIENT, 0)),
        *(forward(1), TAKE["activation"]),
        *(Operation(Kind.INPUT_GRADIENT, 1), GIVE["gradient"], Operation(Kind.WEIGHT_GRADIENT, 1)),
        *(forward(2), Operation(Kind.BACKWARD, 2), GIVE["gradient"]),
    ),
)


def duration_s(kind: Kind, mhz: int) -> float:
    return LASTS_S[kind] * (0.2 + 0.8 * 1400 / mhz)


def power_w(kind: Kind, mhz: int) -> float:
    return 80 + (150 + 400 * LASTS_S[kind]) * (mhz / 1400) ** 2


class MadeUpTimer:
    """A clock that goes on when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def mark(self, followed: bool = False) -> float:
        return self.now_s

    def when_reached(self, mark: Any, callback: Callable[..., None], *arguments: Any) -> None:
        callback(*arguments)

    def times_s(self, marks: Sequence[Any]) -> list[float]:
        return list(marks)


class Rank:
    """One stage's GPU: its clock, its recorder and its energy counter."""

    def __init__(self) -> None:
        self.timer = MadeUpTimer()
        self.recorder = Recorder(self.timer)
        self.energy_j = 0.0
        self.samples = [(0.0, 0.0)]

    def spend(self, until_s: float, watts: float) -> None:
        while (sample_s := self.samples[-1][0] + COUNTER_S) <= until_s:
            self.energy_j += watts * (sample_s - self.timer.now_s)
            self.timer.now_s = sample_s
            self.samples.append((sample_s, self.energy_j))
        self.energy_j += watts * (until_s - self.timer.now_s)
        self.timer.now_s = until_s

    def compute(self, operation: Operation, mhz: int) -> None:
        self.recorder.operation_begin(operation)
        self.spend(self.timer.now_s + duration_s(operation.kind, mhz), power_w(operation.kind, mhz))
        self.recorder.operation_end(operation)


def run_iteration(ranks: Sequence[Rank], clocks: Sequence[IterationClocks]) -> tuple[float, float]:
    """Run the program: who comes to an exchange first waits for the other. Returns its seconds and joules."""
    begin_s, before_j = ranks[0].timer.now_s, sum(rank.energy_j for rank in ranks)
    todo, index = [deque(program) for program in PROGRAM], [0, 0]
    for rank, mine in zip(ranks, clocks, strict=True):
        rank.recorder.iteration_begin(mine, 0)
    while any(todo):
        for stage, rank in enumerate(ranks):
            while todo[stage] and todo[stage][0].kind.is_instruction:
                rank.compute(todo[stage].popleft(), clocks[stage].of(index[stage]))
                index[stage] += 1
        meet_s = max(rank.timer.now_s for rank in ranks)
        for stage, rank in enumerate(ranks):
            if todo[stage]:
                operation = todo[stage].popleft()
                rank.recorder.operation_begin(operation)
                rank.spend(meet_s, WAITING_W)
                rank.recorder.operation_end(operation)
    end_s = max(rank.timer.now_s for rank in ranks)
    for rank in ranks:
        rank.spend(end_s, WAITING_W)
        rank.recorder.iteration_end()
    return end_s - begin_s, sum(rank.energy_j for rank in ranks) - before_j


def order_of(stage: int) -> list[Operation]:
    return [operation for operation in PROGRAM[stage] if operation.kind.is_instruction]


@pytest.fixture(scope="module")
def ranks() -> tuple[Rank, Rank]:
    return Rank(), Rank()


@pytest.fixture(scope="module")
def recorded(ranks: tuple[Rank, Rank]) -> list[list[RecordedIteration]]:
    """A baseline iteration at the highest clock, then the sweep."""
    run_iteration(ranks, [IterationClocks(CLOCKS_MHZ[0])] * 2)
    sweeps = [
        Sweep([CurveKey.of(Instruction.of(stage, one)) for one in order_of(stage)], CLOCKS_MHZ, ProfilingConfig())
        for stage in range(2)
    ]
    while not all(sweep.done for sweep in sweeps):
        chosen = [sweep.next_frequencies() for sweep in sweeps]
        run_iteration(ranks, [IterationClocks(clocks[-1], clocks) for clocks in chosen])
    return [rank.recorder.finished() for rank in ranks]


@pytest.fixture(scope="module")
def profile(ranks: tuple[Rank, Rank], recorded: list[list[RecordedIteration]]) -> tuple[Profile, float]:
    attributions = [
        attribute([span for one in mine for span in spans_of(one, stage)], rank.samples)
        for stage, (rank, mine) in enumerate(zip(ranks, recorded, strict=True))
    ]
    return merge_profiles([(0, attribution) for attribution in attributions])


@pytest.fixture(scope="module")
def frontier(recorded: list[list[RecordedIteration]], profile: tuple[Profile, float]) -> Frontier:
    highest = [mine[0] for mine in recorded]
    traces = [median_trace([one], one.end_s - one.begin_s, stage, 0) for stage, one in enumerate(highest)]
    return solve(Problem(dag_from_traces(traces), *profile))


def test_every_kind_gets_a_curve_of_its_own(profile: tuple[Profile, float]) -> None:
    measured, waiting_w = profile
    assert {key.kind for key in measured.curves} == {kind for kind in Kind if kind.is_instruction}
    assert CurveKey(0, Kind.FORWARD_BACKWARD, 0, 0) in measured.curves
    assert waiting_w == pytest.approx(WAITING_W, rel=0.05)
    for key, points in measured.curves.items():
        for point in points:
            assert point.time_s == pytest.approx(duration_s(key.kind, point.frequency_mhz), rel=1e-4)
            truth_j = power_w(key.kind, point.frequency_mhz) * point.time_s
            assert point.energy_j == pytest.approx(truth_j, rel=0.05)


def test_the_iteration_has_the_instructions_of_its_trace(frontier: Frontier) -> None:
    dag = frontier.problem.dag
    for stage in range(2):
        ran = [dag.instructions[node].operation for node in dag.program_order[stage].tolist()]
        assert ran == order_of(stage)
    assert frontier.t_min_s < frontier.t_star_s


def test_what_the_plan_predicts_is_what_its_clocks_do(ranks: tuple[Rank, Rank], frontier: Frontier) -> None:
    which = 0, (1.0, 1.0)
    solved = SolvedFrontiers({which: frontier}, {which: (frontier.t_min_s,)}, SwitchCost(), spares_switches=False)
    plan = solved.discretize_shard(0, 1)[0]
    highest_s, highest_j = run_iteration(ranks, [IterationClocks(CLOCKS_MHZ[0])] * 2)

    clocks = [IterationClocks(CLOCKS_MHZ[0], tuple(plan.clocks_mhz[stage].values())) for stage in range(2)]
    assert [list(plan.clocks_mhz[stage]) for stage in range(2)] == [order_of(stage) for stage in range(2)]
    planned_s, planned_j = run_iteration(ranks, clocks)

    assert planned_s == pytest.approx(plan.time_s, rel=1e-4)
    assert planned_s == pytest.approx(highest_s, rel=1e-4)
    assert planned_j == pytest.approx(plan.energy_j, rel=0.02)
    assert planned_j < 0.98 * highest_j
    lowered = {one.kind for clocks in plan.clocks_mhz for one, mhz in clocks.items() if mhz < CLOCKS_MHZ[0]}
    assert lowered & {Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT, Kind.FORWARD_BACKWARD}
    for stage, rank in enumerate(ranks):
        ran = rank.recorder.finished()[-1].operations
        asked = {timed.operation: timed.frequency_mhz for timed in ran if timed.operation.kind.is_instruction}
        assert asked == dict(plan.clocks_mhz[stage])
