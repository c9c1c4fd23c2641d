"""A made-up job of two stages: its profile, its traces, and a coordinator that knows both."""

from perseus_ds.config import Config
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.coordination.resume import ResumeData
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers
from perseus_ds.pipeline.events import Direction, Operation, Topology, Transfer
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint
from perseus_ds.rundir import RunDirectory

TOPOLOGY = Topology(0, 2, 0, 1, 0, 2)
DEPENDS = {"model": "made up"}
PROFILE = Profile(
    {
        CurveKey(stage, kind): tuple(
            ProfilePoint(mhz, work * 1400 / mhz, work * 1400 / mhz * (60.0 + 300.0 * (mhz / 1400) ** 3))
            for mhz in (1400, 1200, 1000, 800)
        )
        for kind, work in ((Kind.FORWARD, 0.1), (Kind.BACKWARD, 0.2))
        for stage in (0, 1)
    },
    "made up",
)


def traces(microbatches: int = 4) -> tuple[StageTrace, ...]:
    """All forwards, then all backwards, of two stages; transfers take no time."""

    def stage_trace(stage: int) -> StageTrace:
        operations, now_s = [], 0.0
        sends = (Direction.RECEIVE, Direction.SEND)
        for kind, tag, takes_s in (
            (Kind.FORWARD, "activation", 0.1),
            (Kind.BACKWARD, "gradient", 0.2),
        ):
            receives_first = (kind is Kind.FORWARD) == (stage == 1)
            for microbatch in range(microbatches):
                exchange = Operation(Kind.EXCHANGE, transfers=(Transfer(sends[not receives_first], 1 - stage, tag),))
                work = Operation(kind, microbatch)
                for operation in (exchange, work) if receives_first else (work, exchange):
                    duration_s = takes_s if operation is work else 0.0
                    operations.append(TimedOperation(operation, now_s, now_s + duration_s, 1400))
                    now_s += duration_s
        return StageTrace(stage, 0, 1.6, tuple(operations))

    return stage_trace(0), stage_trace(1)


def make(tmp_path, directory: RunDirectory | None = None, group_of=(0,), **settings) -> Coordinator:
    config = Config(run_dir=tmp_path, **settings)
    directory = directory or RunDirectory(tmp_path)
    return Coordinator(config, TOPOLOGY, directory, [DEPENDS], [ResumeData(PROFILE, 60.0, traces())], group_of)


def finished(coordinator: Coordinator, draft: SolvedFrontiers, version: int = 1, ranks: int = 1):
    """What the coordinator makes of a draft that so many ranks have rounded."""
    return coordinator.finish(version, draft, [draft.discretize_shard(place, ranks) for place in range(ranks)])


def first_book(coordinator: Coordinator) -> PlanTable:
    return finished(coordinator, coordinator.resume())
