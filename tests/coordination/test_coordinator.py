"""What the coordinator makes of profiles and traces, by objective."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from made_up_job import DEPENDS, PROFILE, TOPOLOGY, finished, first_book, make, traces

from perseus_ds.config import Config
from perseus_ds.coordination import stage_report
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.derived_profiles import scaled_profile
from perseus_ds.coordination.resume import ResumeData, look_up
from perseus_ds.coordination.stage_report import StageReport
from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.emulation import emulate
from perseus_ds.frontier.observed import at_highest
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.table import CurveKey, read_profile
from perseus_ds.rundir import RunDirectory


def test_min_time_runs_the_fastest_plan_and_the_rest_waits_for_stragglers(tmp_path):
    directory = RunDirectory(tmp_path)
    table = first_book(make(tmp_path, directory))
    assert directory.flush()
    assert table.groups[0].base.t_objective_s == pytest.approx(table.groups[0].base.t_min_s)
    assert [point.time_s for point in table.groups[0].base.points] == sorted(
        point.time_s for point in table.groups[0].base.points
    )
    assert table.microbatches == 4
    assert read_profile(tmp_path / "profile.csv").curves == PROFILE.curves
    assert json.loads((tmp_path / "frontier.json").read_text())["t_min_s"] == table.groups[0].base.t_min_s


@pytest.mark.parametrize(
    "objective", [{"slowdown": 1.1}, {"deadline_s": 2.0}, "min_energy", {"power_cap_w": 420.0}], ids=str
)
def test_an_objective_moves_the_plan_in_force(tmp_path, objective):
    table = first_book(make(tmp_path, objective=objective))
    (plan,) = table.choose(np.ones((1, 2)))
    assert table.groups[0].base.t_min_s < plan.time_s <= table.groups[0].base.t_star_s
    match objective:
        case {"slowdown": factor}:
            assert (
                0.95 * factor * table.groups[0].base.t_min_s
                < plan.time_s
                <= factor * table.groups[0].base.t_min_s * (1 + 1e-9)
            )
        case {"deadline_s": limit_s}:
            assert plan.time_s <= limit_s
        case {"power_cap_w": limit_w}:
            assert plan.energy_j / plan.time_s <= limit_w
        case "min_energy":
            assert plan.energy_j == pytest.approx(
                min(point.energy_j for point in table.groups[0].base.points), rel=0.01
            )


@pytest.mark.parametrize(("objective", "closest"), [({"deadline_s": 0.1}, 0), ({"power_cap_w": 1.0}, -1)], ids=str)
def test_an_objective_that_cannot_be_met_is_said_so_once_and_the_closest_plan_used(
    tmp_path, objective, closest, log_lines
):
    coordinator = make(tmp_path, objective=objective)
    table = first_book(coordinator)
    finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))]))
    assert log_lines.text.count("[objective-closest]") == 1
    assert "cannot be met" in log_lines.text
    assert table.choose(np.ones((1, 2)))[0].time_s == pytest.approx(table.groups[0].base.points[closest].time_s)


def test_the_ranks_share_the_rounding_out_and_get_what_one_alone_would(tmp_path):
    coordinator = make(tmp_path)
    alone = first_book(coordinator).groups[0].base
    for ranks in (2, 7, 100):
        draft = pickle.loads(pickle.dumps(coordinator.resume()))
        assert finished(coordinator, draft, ranks=ranks).groups[0].base == alone


def test_faster_gpus_slow_down_for_pipelines_of_slower_ones(tmp_path):
    slower = ResumeData(scaled_profile(PROFILE, np.array([1.2, 1.2])), 90.0, traces())
    config, known = Config(run_dir=tmp_path), [ResumeData(PROFILE, 60.0, traces()), slower]
    coordinator = Coordinator(config, TOPOLOGY, RunDirectory(tmp_path), [DEPENDS, DEPENDS], known, group_of=(0, 1, 0))
    table = first_book(coordinator)
    fast, slow = table.groups
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
    assert table.t_prime_s(slowed) == pytest.approx(table.groups[1].straggler_plans[1.3, 1.0].t_min_s)
    assert max(plan.time_s for plan in table.choose(slowed)) <= table.t_prime_s(slowed) * (1 + 1e-9)


@pytest.mark.parametrize("slowdown", [1.1, 1.3, 1.5])
def test_who_waits_for_a_straggler_saves_what_emulate_says(tmp_path, slowdown):
    group = (table := first_book(make(tmp_path, group_of=(0, 0)))).groups[0]
    slowdowns = np.array([[1.0, 1.0], [slowdown, slowdown]])
    t_prime_s, plan = table.t_prime_s(slowdowns), table.choose(slowdowns)[0]
    planned_j = plan.energy_j + group.waiting_w * (t_prime_s - plan.time_s)
    highest_j = group.max_energy_j + group.waiting_w * (t_prime_s - group.max_time_s)

    frontier = solve(Problem(group.dag, PROFILE, 60.0))
    longer = t_prime_s / frontier.t_min_s  # the optimizer's part of an iteration does not slow down
    two, three = (emulate(frontier, pipelines, [longer]) for pipelines in (2, 3))  # one more that waits
    emulated = 1 - (three.planned_j - two.planned_j) / (three.baseline_j - two.baseline_j)
    assert 1 - planned_j / highest_j == pytest.approx(emulated, abs=0.02)
    assert emulated > 0.05


def test_a_slow_stage_gets_plans_in_which_the_others_do_not_hurry(tmp_path):
    coordinator = make(tmp_path)
    table = first_book(coordinator)
    route = finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))])).plan_sets[0, (1.0, 1.3)]
    assert route.t_min_s == pytest.approx(table.t_prime_s(np.array([[1.0, 1.3]])))
    hurrying = sum(table.groups[0].base.points[0].clocks_mhz[0].values())
    assert sum(route.points[0].clocks_mhz[0].values()) < hurrying


def test_a_drift_rescales_expectations_plans_and_the_guard_s_measure(tmp_path):
    directory = RunDirectory(tmp_path)
    coordinator = make(tmp_path, directory)
    before = first_book(coordinator)
    after = finished(coordinator, coordinator.rescale(np.array([1.5, 1.5])))
    assert after.groups[0].base.t_min_s == pytest.approx(1.5 * before.groups[0].base.t_min_s, rel=0.05)
    assert after.baseline_s / after.max_time_s == pytest.approx(before.baseline_s / before.max_time_s)
    key = CurveKey(0, Kind.FORWARD)
    assert after.groups[0].expected_s(key, 1200) == pytest.approx(1.5 * before.groups[0].expected_s(key, 1200))
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


def test_switches_are_bounded_where_the_configuration_says_so(tmp_path):
    free = first_book(make(tmp_path))
    bounded = first_book(make(tmp_path, planner={"max_switches": 2}))
    assert max(point.switches for point in bounded.groups[0].base.points) <= 2 * 2
    assert max(point.switches for point in free.groups[0].base.points) > 2 * 2
    assert bounded.groups[0].base.points[-1].energy_j < bounded.max_energy_j


def test_the_objective_in_force_stays_through_stragglers_drift_and_other_iterations(tmp_path):
    coordinator = make(tmp_path, objective={"slowdown": 1.1})
    first_book(coordinator)
    other = Topology(1, 2, 0, 1, 1, 2)
    routes = [
        finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))])).plan_sets[0, (1.0, 1.3)],
        finished(coordinator, coordinator.rescale((1.2, 1.2))).groups[0].base,
        finished(coordinator, coordinator.retrace(list(zip((TOPOLOGY, other), traces(6), strict=True)))).groups[0].base,
    ]
    for route in routes:
        assert 1.03 * route.t_min_s < route.t_objective_s <= 1.1 * route.t_min_s * (1 + 1e-9)


def test_what_has_drifted_is_solved_anew_and_old_stragglers_are_forgotten(tmp_path):
    coordinator = make(tmp_path)
    first_book(coordinator)
    before = finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))])).plan_sets[0, (1.0, 1.3)]
    table = finished(coordinator, coordinator.rescale((2.0, 2.0)), version=2)
    assert table.missing(np.array([[1.0, 1.3]])) == [(0, (1.0, 1.3))]
    after = finished(coordinator, coordinator.straggler_plans([(0, (1.0, 1.3))])).plan_sets[0, (1.0, 1.3)]
    assert after.t_min_s == pytest.approx(2.0 * before.t_min_s, rel=0.05)


def test_what_the_ranks_hand_in_is_planned_and_remembered_like_what_was_known(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_report, "merge_profiles", lambda ranks, source: (PROFILE, 60.0))
    directory = RunDirectory(tmp_path)
    topologies = (TOPOLOGY, Topology(1, 2, 0, 1, 1, 2))
    reports = [StageReport(topology, trace, None) for topology, trace in zip(topologies, traces(), strict=True)]
    coordinator = Coordinator(Config(run_dir=tmp_path), TOPOLOGY, directory, [DEPENDS], [ResumeData()], (0,))
    table = finished(coordinator, coordinator.solve(reports))
    known = first_book(make(tmp_path / "known"))
    assert table.groups[0].base == known.groups[0].base
    assert (
        (table.baseline_s, table.microbatches, table.group_of)
        == (1.6, 4, (0,))
        == (
            known.baseline_s,
            known.microbatches,
            known.group_of,
        )
    )
    assert directory.flush()
    (found,) = look_up(Config(run_dir=tmp_path), [tmp_path], [DEPENDS], [])
    assert (found.profile.curves, found.blocking_power_w) == (PROFILE.curves, 60.0)


def test_a_group_tells_what_one_pipeline_runs_and_draws_at_the_highest_clock(tmp_path):
    group = first_book(make(tmp_path)).groups[0]
    highest = at_highest(Problem(group.dag, PROFILE, 60.0))
    assert (group.max_time_s, group.max_energy_j) == (highest.time_s, highest.energy_j)
    assert group.waiting_w == 2 * 60.0
    assert group.fastest_s.tolist() == [PROFILE.curve(CurveKey.of(one))[0].time_s for one in group.dag.instructions]
    assert group.dag.makespan(group.fastest_s) == pytest.approx(group.base.t_min_s)
    assert {key: row.time_s for key, rows in PROFILE.curves.items() for row in rows if row.frequency_mhz == 800} == {
        key: time_s for (key, mhz), time_s in group.expected_times_s.items() if mhz == 800
    }


def test_the_coordinator_shows_how_far_it_is_with_the_first_plans_but_not_with_a_straggler_s(tmp_path, log_lines):
    coordinator = make(tmp_path)
    draft = coordinator.resume()
    assert [line for line in log_lines.messages if "100/100" in line]
    log_lines.clear()
    assert coordinator.discretize_shard(draft, 0, 2) == draft.discretize_shard(0, 2)
    assert [line.split()[-1] for line in log_lines.messages] == ["1/13", "5/13", "10/13"]
    assert all("rounding, plans on this rank" in line for line in log_lines.messages)
    log_lines.clear()
    assert coordinator.discretize_shard(draft, 50, 51) == {}
    slow = coordinator.straggler_plans([(0, (1.0, 1.3))])
    assert coordinator.discretize_shard(slow, 0, 1) == slow.discretize_shard(0, 1)
    assert log_lines.messages == []


@pytest.mark.parametrize(
    ("planner", "spares"), [({}, False), ({"max_switches": 0}, True), ({"switch_penalty_j": 0.1}, True)], ids=str
)
def test_the_planner_s_settings_and_the_gpus_jitter_go_into_every_draft(tmp_path, planner, spares):
    config = Config(run_dir=tmp_path, planner=planner)
    known = [ResumeData(PROFILE, 60.0, traces())]
    coordinator = Coordinator(config, TOPOLOGY, RunDirectory(tmp_path), [DEPENDS], known, (0,), switch_jitter_s=0.02)
    draft = coordinator.resume()
    assert draft.spares_switches is spares
    cost = draft.switch_cost
    assert (draft.jitter_s, cost.penalty_j) == (0.02, planner.get("switch_penalty_j", 0.0))
    assert cost.max_switches == planner.get("max_switches")


def test_gpus_that_share_a_stage_all_draw_power(tmp_path):
    topology = Topology(0, 4, 0, 1, 0, 2, shard_size=2)
    known = [ResumeData(PROFILE, 60.0, traces())]
    coordinator = Coordinator(Config(run_dir=tmp_path), topology, RunDirectory(tmp_path), [DEPENDS], known, (0,))
    two, one = first_book(coordinator), first_book(make(tmp_path))
    assert two.max_energy_j == pytest.approx(2 * one.max_energy_j)
    assert two.groups[0].waiting_w == 2 * one.groups[0].waiting_w


def test_plans_are_never_predicted_faster_than_the_baseline_s_trace_allows(tmp_path):
    """Beside the host's other work, instructions took longer in the baseline than their curves tell."""
    longer = [
        replace(
            trace,
            iteration_time_s=1.1 * trace.iteration_time_s,
            operations=tuple(
                replace(one, begin_s=1.1 * one.begin_s, end_s=1.1 * one.end_s) for one in trace.operations
            ),
        )
        for trace in traces()
    ]
    known = [ResumeData(PROFILE, 60.0, longer)]
    coordinator = Coordinator(Config(run_dir=tmp_path), TOPOLOGY, RunDirectory(tmp_path), [DEPENDS], known, (0,))
    table = first_book(coordinator)
    assert table.baseline_s == pytest.approx(1.1 * 1.6)
    assert table.max_time_s == pytest.approx(table.baseline_s)
    assert table.groups[0].base.t_min_s == pytest.approx(table.baseline_s)
    retraced = finished(coordinator, coordinator.retrace([(TOPOLOGY, trace) for trace in longer]), version=2)
    assert retraced.max_time_s == pytest.approx(table.baseline_s)
