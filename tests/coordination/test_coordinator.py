"""What the coordinator makes of a known profile and traces, by objective."""

import json
import pickle
from functools import partial

import numpy as np
import pytest

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.coordinator import Coordinator, scaled_profile
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.coordination.resume import (
    Hardware,
    Resumable,
    ResumeData,
    copy_resume_data,
    depends_on,
    look_up,
    peers_of,
    remember,
)
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers
from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.emulation import emulate
from perseus_ds.pipeline.events import Direction, Operation, Topology, Transfer
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, read_profile
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


def make(tmp_path, directory: RunDirectory | None = None, peers_of=(0,), **settings) -> Coordinator:
    config = Config(run_dir=tmp_path, **settings)
    directory = directory or RunDirectory(tmp_path)
    return Coordinator(config, TOPOLOGY, directory, [DEPENDS], [ResumeData(PROFILE, 60.0, traces())], peers_of)


def finished(coordinator: Coordinator, draft: SolvedFrontiers, version: int = 1, ranks: int = 1):
    """What the coordinator makes of a draft that so many ranks have rounded."""
    return coordinator.finish(version, draft, [draft.discretize_shard(place, ranks) for place in range(ranks)])


def first_book(coordinator: Coordinator) -> PlanTable:
    return finished(coordinator, coordinator.resume())


def test_min_time_runs_the_fastest_plan_and_the_rest_waits_for_stragglers(tmp_path):
    directory = RunDirectory(tmp_path)
    table = first_book(make(tmp_path, directory))
    assert directory.flush()
    assert table.peers[0].base.t_objective_s == pytest.approx(table.peers[0].base.t_min_s)
    assert [point.time_s for point in table.peers[0].base.points] == sorted(
        point.time_s for point in table.peers[0].base.points
    )
    assert table.microbatches == 4
    assert json.loads((tmp_path / "frontier.json").read_text())["t_min_s"] == table.peers[0].base.t_min_s


@pytest.mark.parametrize(
    "objective", [{"slowdown": 1.1}, {"deadline_s": 2.0}, "min_energy", {"power_cap_w": 420.0}], ids=str
)
def test_an_objective_moves_the_plan_in_force(tmp_path, objective):
    table = first_book(make(tmp_path, objective=objective))
    (plan,) = table.choose(np.ones((1, 2)))
    assert table.peers[0].base.t_min_s < plan.time_s <= table.peers[0].base.t_star_s
    match objective:
        case {"slowdown": factor}:
            assert (
                0.95 * factor * table.peers[0].base.t_min_s
                < plan.time_s
                <= factor * table.peers[0].base.t_min_s * (1 + 1e-9)
            )
        case {"deadline_s": limit_s}:
            assert plan.time_s <= limit_s
        case {"power_cap_w": limit_w}:
            assert plan.energy_j / plan.time_s <= limit_w
        case "min_energy":
            assert plan.energy_j == pytest.approx(min(point.energy_j for point in table.peers[0].base.points), rel=0.01)


@pytest.mark.parametrize(("objective", "closest"), [({"deadline_s": 0.1}, 0), ({"power_cap_w": 1.0}, -1)], ids=str)
def test_an_objective_that_cannot_be_met_is_said_so_once_and_the_closest_plan_used(
    tmp_path, objective, closest, caplog
):
    log.addHandler(caplog.handler)
    try:
        coordinator = make(tmp_path, objective=objective)
        table = first_book(coordinator)
        finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))]))
    finally:
        log.removeHandler(caplog.handler)
    assert caplog.text.count("[objective-closest]") == 1
    assert "cannot be met" in caplog.text
    assert table.choose(np.ones((1, 2)))[0].time_s == pytest.approx(table.peers[0].base.points[closest].time_s)


def test_the_ranks_share_the_rounding_out_and_get_what_one_alone_would(tmp_path):
    coordinator = make(tmp_path)
    alone = first_book(coordinator).peers[0].base
    for ranks in (2, 7, 100):
        draft = pickle.loads(pickle.dumps(coordinator.resume()))
        assert finished(coordinator, draft, ranks=ranks).peers[0].base == alone


def test_faster_gpus_slow_down_for_pipelines_of_slower_ones(tmp_path):
    slower = ResumeData(scaled_profile(PROFILE, np.array([1.2, 1.2])), 90.0, traces())
    config, known = Config(run_dir=tmp_path), [ResumeData(PROFILE, 60.0, traces()), slower]
    coordinator = Coordinator(config, TOPOLOGY, RunDirectory(tmp_path), [DEPENDS, DEPENDS], known, peers_of=(0, 1, 0))
    table = first_book(coordinator)
    fast, slow = table.peers
    healthy = np.ones((3, 2))
    assert table.t_prime_s(healthy) == slow.base.t_min_s > fast.base.t_min_s
    plans = table.choose(healthy)
    assert plans == (fast.base.point(slow.base.t_min_s), slow.base.points[0], fast.base.point(slow.base.t_min_s))
    waited_j = fast.waiting_w * (plans[1].time_s - plans[0].time_s)
    assert table.energy_j(plans) == pytest.approx((2 * (plans[0].energy_j + waited_j) + plans[1].energy_j) / 3)

    # A slow stage means something else on either kind of GPU.
    slowed = np.array([[1.0, 1.0], [1.3, 1.0], [1.0, 1.3]])
    assert table.missing(slowed) == [(0, (1.0, 1.3)), (1, (1.3, 1.0))]
    table = table.with_straggler_plans(
        finished(coordinator, coordinator.straggler_plans(table.missing(slowed)), version=2)
    )
    assert not table.missing(slowed)
    assert table.t_prime_s(slowed) == pytest.approx(table.peers[1].straggler_plans[1.3, 1.0].t_min_s)
    assert max(plan.time_s for plan in table.choose(slowed)) <= table.t_prime_s(slowed) * (1 + 1e-9)


@pytest.mark.parametrize("slowdown", [1.1, 1.3, 1.5])
def test_who_waits_for_a_straggler_saves_what_emulate_says(tmp_path, slowdown):
    peers = (table := first_book(make(tmp_path, peers_of=(0, 0)))).peers[0]
    slowdowns = np.array([[1.0, 1.0], [slowdown, slowdown]])
    t_prime_s, plan = table.t_prime_s(slowdowns), table.choose(slowdowns)[0]
    planned_j = plan.energy_j + peers.waiting_w * (t_prime_s - plan.time_s)
    highest_j = peers.max_energy_j + peers.waiting_w * (t_prime_s - peers.max_time_s)

    frontier = solve(Problem(peers.dag, PROFILE, 60.0))
    longer = t_prime_s / frontier.t_min_s  # the optimizer's part of an iteration does not slow down
    two, three = (emulate(frontier, pipelines, [longer]) for pipelines in (2, 3))  # one more that waits
    emulated = 1 - (three.planned_j - two.planned_j) / (three.baseline_j - two.baseline_j)
    assert 1 - planned_j / highest_j == pytest.approx(emulated, abs=0.02)
    assert emulated > 0.05


def test_pipelines_with_the_same_gpus_are_peers():
    a, b = (Hardware(name, "550", (1400,), 0.01) for name in "AB")
    assert peers_of([a, a, b, b, a, a], pipelines=3) == (0, 1, 0)
    assert peers_of([a, b, b, a], pipelines=2) == (0, 1)
    mixed = [depends_on(Config(run_dir="unused"), TOPOLOGY, one)["gpu"] for one in ([a, a], [a, b], [b, a])]
    assert mixed == ["A", "A + B", "B + A"]


def test_a_slow_stage_gets_plans_in_which_the_others_do_not_hurry(tmp_path):
    coordinator = make(tmp_path)
    table = first_book(coordinator)
    route = finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))])).routes[0, (1.0, 1.3)]
    assert route.t_min_s == pytest.approx(table.t_prime_s(np.array([[1.0, 1.3]])))
    hurrying = sum(table.peers[0].base.points[0].clocks_mhz[0].values())
    assert sum(route.points[0].clocks_mhz[0].values()) < hurrying


def test_a_drift_rescales_expectations_plans_and_the_guard_s_measure(tmp_path):
    directory = RunDirectory(tmp_path)
    coordinator = make(tmp_path, directory)
    before = first_book(coordinator)
    after = finished(coordinator, coordinator.rescale(np.array([1.5, 1.5])))
    assert after.peers[0].base.t_min_s == pytest.approx(1.5 * before.peers[0].base.t_min_s, rel=0.05)
    assert after.baseline_s / after.max_time_s == pytest.approx(before.baseline_s / before.max_time_s)
    key = CurveKey(0, Kind.FORWARD)
    assert after.peers[0].expected_s(key, 1200) == pytest.approx(1.5 * before.peers[0].expected_s(key, 1200))
    assert scaled_profile(PROFILE, np.array([2.0, 1.0])).curve(key)[0].energy_j == 2 * PROFILE.curve(key)[0].energy_j
    assert directory.flush()
    left = read_profile(tmp_path / "profile.csv")
    assert left.curve(key)[0].time_s == pytest.approx(1.5 * PROFILE.curve(key)[0].time_s)


def test_other_iterations_are_planned_with_the_same_profile(tmp_path):
    directory = RunDirectory(tmp_path)
    coordinator = make(tmp_path, directory)
    first_book(coordinator)
    other = Topology(1, 2, 0, 1, 1, 2)
    table = finished(coordinator, coordinator.retrace(list(zip((TOPOLOGY, other), traces(6), strict=True))))
    assert table.microbatches == 6
    assert directory.flush()
    assert [StageTrace.from_json(row) for row in json.loads((tmp_path / "trace.json").read_text())] == list(traces(6))


def test_what_a_run_leaves_is_found_by_the_next_unless_something_differs(tmp_path):
    config = Config(run_dir=tmp_path)
    directory = RunDirectory(tmp_path)
    first_book(make(tmp_path, directory))
    assert directory.flush()
    (tmp_path / "summary.json").write_text(json.dumps({"baseline": {"iteration_time_s": 1.6, "energy_j": 500.0}}))
    (found,) = look_up(config, [tmp_path], [DEPENDS], [])
    assert found.known is Resumable.ALL
    assert found.baseline == {"iteration_time_s": 1.6, "energy_j": 500.0}
    assert len(found.traces) == 2
    (tmp_path / "trace.json").write_text("{")
    assert look_up(config, [tmp_path], [DEPENDS], [])[0].known is Resumable.PROFILE
    assert look_up(config, [tmp_path], [{"model": "another"}], [])[0].known is Resumable.NOTHING
    anew = Config(run_dir=tmp_path, profiling={"reuse": False})
    assert look_up(anew, [tmp_path], [DEPENDS], [])[0].known is Resumable.NOTHING


def test_what_a_checkpoint_holds_is_found_where_the_run_directory_is_empty(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    first_book(make(tmp_path / "run", directory))
    directory.write_json("summary.json", {"baseline": {"iteration_time_s": 1.6, "energy_j": 500.0}})
    (tmp_path / "checkpoint").mkdir()
    for place in (tmp_path / "checkpoint", tmp_path / "msc:" / "bucket"):
        directory.later(partial(copy_resume_data, directory.path, place / "perseus_ds"))
    assert directory.flush()
    assert directory.failure is None
    again = Config(run_dir=tmp_path / "again")
    (found,) = look_up(again, [again.run_dir, tmp_path / "checkpoint" / "perseus_ds"], [DEPENDS], [])
    assert found.known is Resumable.ALL
    assert found.profile.curves == PROFILE.curves
    assert (found.traces, found.baseline["energy_j"]) == (traces(), 500.0)
    assert not (tmp_path / "msc:").exists(), "an object store's address is no place to write to"


def test_the_cache_directory_is_shared_between_runs(tmp_path):
    config = Config(run_dir=tmp_path / "one", profiling={"cache_dir": tmp_path / "cache"})
    directory = RunDirectory(tmp_path / "one")
    remember(config, directory, 0, DEPENDS, PROFILE, 60.0)
    assert directory.flush()
    (found,) = look_up(config, [tmp_path / "another"], [DEPENDS], [])
    assert found.known is Resumable.PROFILE
    assert found.blocking_power_w == 60.0


def test_switches_are_bounded_where_the_configuration_says_so(tmp_path):
    free = first_book(make(tmp_path))
    bounded = first_book(make(tmp_path, planner={"max_switches": 2}))
    assert max(point.switches for point in bounded.peers[0].base.points) <= 2 * 2
    assert max(point.switches for point in free.peers[0].base.points) > 2 * 2
    assert bounded.peers[0].base.points[-1].energy_j < bounded.max_energy_j
