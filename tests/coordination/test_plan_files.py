"""What planning leaves in the run directory."""

import json
from dataclasses import replace

import pytest
from made_up_job import DEPENDS, PROFILE, finished, make, traces

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.plan_files import PlanFiles
from perseus_ds.frontier import Problem, solve
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.cache import load_profile
from perseus_ds.profiling.table import CurveKey, read_profile
from perseus_ds.rundir import RunDirectory


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path)


def files(directory: RunDirectory, **settings) -> PlanFiles:
    return PlanFiles(Config(run_dir=directory.path, **settings), directory, [DEPENDS, {"model": "another"}])


def written(directory: RunDirectory, name: str):
    assert directory.flush()
    assert directory.failure is None
    return json.loads((directory.path / name).read_text())


def test_profile_and_traces_come_back_and_other_groups_have_files_of_their_own(directory):
    for number, microbatches in ((0, 4), (1, 2)):
        files(directory).profile(number, PROFILE)
        files(directory).traces(number, traces(microbatches))
    for name, microbatches in (("trace.json", 4), ("trace-2.json", 2)):
        assert [StageTrace.from_json(row) for row in written(directory, name)] == list(traces(microbatches))
    for name in ("profile.csv", "profile-2.csv"):
        assert read_profile(directory.path / name).curves == PROFILE.curves


def test_a_measured_profile_is_remembered_and_one_that_the_user_has_given_is_not(directory, tmp_path):
    files(directory, profiling={"profile": "given.csv"}).remember(0, PROFILE, 60.0)
    assert directory.flush()
    assert load_profile(tmp_path, DEPENDS, log.warning) is None
    files(directory).remember(1, PROFILE, 70.0)
    assert written(directory, "resume-2.json") == {"model": "another"}
    profile, blocking_power_w = load_profile(tmp_path, {"model": "another"}, log.warning)
    assert (profile.curves, blocking_power_w) == (PROFILE.curves, 70.0)


@pytest.mark.parametrize("simulator", [None, {}], ids=["real", "simulated"])
def test_the_frontier_is_told_with_its_plans(directory, tmp_path, simulator, log_lines):
    coordinator = make(tmp_path / "job")
    (group,) = finished(coordinator, coordinator.resume()).groups
    limited = frozenset({CurveKey(0, Kind.FORWARD)})
    profile = replace(PROFILE, switch_tail_share=0.05, switch_latency_s={1410: 0.02}, limited=limited)
    frontier = solve(Problem(dag_from_traces(traces()), profile, 60.0))
    log_lines.clear()
    files(directory, simulator=simulator).frontier(1, frontier, group)
    told = written(directory, "frontier-2.json")
    assert told["simulated"] is (simulator is not None)
    assert (told["t_min_s"], told["t_star_s"]) == (frontier.t_min_s, frontier.t_star_s)
    assert (told["switch_tail_share"], told["switch_latency_s"]) == (0.05, {"1410": 0.02})
    assert told["limited"] == [[0, "forward", 0, -1]]
    assert (told["breakpoints"], told["max_energy_j"]) == (frontier.breakpoints, group.max_energy_j)
    assert (told["blocking_power_w"], told["gpus_per_stage"]) == ([60.0, 60.0], 1)
    assert [tuple(row.values()) for row in told["frontier"]] == [
        (point.time_s, point.energy_j, point.lower_bound_j, point.switches) for point in group.base.points
    ]
    assert list(told["frontier"][0]) == ["time_s", "energy_j", "lower_bound_j", "switches"]
    assert log_lines.messages == [
        f"frontier: 16 instructions, {frontier.breakpoints} breakpoints, T_min {frontier.t_min_s:.3f} s, "
        f"T* {frontier.t_star_s:.3f} s, 25 plans"
    ]


def test_progress_is_shown_every_few_steps_to_the_log_and_to_who_asks(directory, log_lines):
    with files(directory).progress("rounding", 10, every=5) as show:
        for step in range(1, 8):
            show(step)
    assert [message.split()[-1] for message in log_lines.messages] == ["1/10", "5/10"]
    assert written(directory, "progress.json") == {"progress": "rounding: 5/10"}
