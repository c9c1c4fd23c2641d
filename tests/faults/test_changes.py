"""A job that changes while it runs, or that goes on where an earlier one has stopped: planned anew, never stopped."""

import json
import shutil

import numpy as np
import pytest
from small_job import RANKS, SIMULATOR, Job

from perseus_ds.config import SimulatorConfig
from perseus_ds.coordination.derived_profiles import scaled_profile
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, Profile, read_profile, write_profile
from perseus_ds.runtime.simulation import simulated_profile

pytestmark = pytest.mark.against_the_clock("measured times of six processes on few cores are compared with plans")

STEADY = {"threshold": 1.5, "recovery_threshold": 1.4}  # milliseconds on a busy host


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(iterations=0, **settings):
        jobs.append(Job(tmp_path / "job", iterations, settings={"straggler": STEADY, **settings}))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


def stopped_switched_on(job) -> bool:
    return job.stop() == [0] * RANKS and all(result["on"] for result in job.results())


def slowest_within_s(frontier: dict, t_prime_s: float) -> float:
    """Return the time of the slowest plan up to T_opt, else of the fastest one: T_min counts without jitter."""
    t_opt_s = min(frontier["t_star_s"], t_prime_s) * (1 + 1e-9)
    times_s = [point["time_s"] for point in frontier["frontier"]]
    return max((time_s for time_s in times_s if time_s <= t_opt_s), default=min(times_s))


def test_iterations_of_another_size_are_planned_anew(start):
    job = start()
    before = job.sees("plans")
    job.order("larger")
    after = job.sees("plans", lambda event: event != before)
    assert after["t_min_s"] > 1.2 * before["t_min_s"]
    assert stopped_switched_on(job), job.log()
    plan = json.loads((job.directory / "run" / "plan.json").read_text())
    assert {row[2] for row in plan["frequency_mhz"]} == set(range(5))


def test_all_pipelines_slow_alike_are_drift_and_the_profile_is_rescaled(start):
    slow = {"stage": 0, "begin_iteration": 25, "end_iteration": 5000, "slowdown": 2.0}
    throttle = [{**slow, "pipeline": pipeline} for pipeline in (0, 1)]
    job = start(simulator={**SIMULATOR, "throttle": throttle}, straggler={**STEADY, "drift_iterations": 8})
    before = job.sees("plans")
    drift = job.sees("drift")
    assert drift["factors"][0] == pytest.approx(2.0, rel=0.2)
    after = job.sees("plans", lambda event: event != before)
    assert after["iteration"] > drift["iteration"]
    assert after["t_min_s"] > 1.3 * before["t_min_s"]
    assert stopped_switched_on(job), job.log()
    assert "[drift]" in job.log()


def test_different_gpus_have_their_own_frontiers_and_a_resumed_job_does_not_profile_again(start, tmp_path):
    slower = scaled_profile(simulated_profile(SimulatorConfig(), stages=2), np.array([3.0, 3.0]))
    write_profile(slower, tmp_path / "slower.csv")
    settings = {
        "profiling": {"max_iterations": 6},
        "simulator": {**SIMULATOR, "pipeline_profiles": ["gpt3-175b-a100-sxm", str(tmp_path / "slower.csv")]},
    }
    first = start(**settings)
    plans = first.sees("switch")["plans"]
    checkpoint = first.directory / "checkpoint" / "perseus_ds"
    first.order("save")
    first.leaves(checkpoint / "summary.json")
    assert stopped_switched_on(first), first.log()
    assert first.events("phase")[2]["phase"] == "profiling"
    run = first.directory / "run"
    frontiers = [json.loads((run / name).read_text()) for name in ("frontier.json", "frontier-2.json")]
    # Whichever is faster (on a busy host it may be either) slows down to T_opt, like all that wait for a slower one.
    t_prime_s = max(frontier["t_min_s"] for frontier in frontiers)
    by_themselves_s = [slowest_within_s(frontier, t_prime_s) for frontier in frontiers]
    # With clocks that jitter, the fastest plan of the slower one may take longer than T', and sets the pace.
    pace_s = max(t_prime_s, *by_themselves_s)
    assert [plan["time_s"] for plan in plans] == [slowest_within_s(frontier, pace_s) for frontier in frontiers]
    own, slow = (read_profile(run / name).curve(CurveKey(0, Kind.FORWARD)) for name in ("profile.csv", "profile-2.csv"))
    assert slow[0].time_s > 1.5 * own[0].time_s

    # The framework's checkpoint has all that is needed, should the run directory be lost.
    shutil.rmtree(run)
    resumed = start(**settings)
    enforcing = resumed.sees("phase", lambda event: event["phase"] == "enforcing")
    resumed.reaches(0, enforcing["iteration"] + 6)
    assert stopped_switched_on(resumed), resumed.log()
    assert {event["phase"] for event in resumed.events("phase")} == {"solving", "enforcing"}
    summary = json.loads((run / "summary.json").read_text())
    assert summary["baseline"]["energy_j"] > 0
    assert summary["saving"] is not None


def test_observing_predicts_and_sets_no_clock(start):
    job = start(mode="observe")
    job.sees("phase", lambda event: event["phase"] == "observing")
    assert job.stop() == [0] * RANKS
    summary = json.loads((job.directory / "run" / "summary.json").read_text())
    assert summary["predicted_saving"] > 0.0
    assert summary["measured"] is None
    assert job.clocks_are_reset()


def test_operators_and_programs_announce_stragglers_and_take_them_back(start):
    job = start()
    planned = job.sees("switch")["plans"]

    def sees(since: int, plans) -> int:
        seen = job.sees("switch", lambda event: event["iteration"] > since and plans(event["plans"]))
        return seen["iteration"]

    def slowed(pipeline: int):
        return lambda plans: plans[pipeline]["time_s"] > 1.1 * planned[pipeline]["time_s"]

    control = job.directory / "run" / "control"
    control.write_text("straggler 1 1.4\nnonsense\n")
    iteration = sees(0, slowed(0))
    control.write_text("")
    iteration = sees(iteration, planned.__eq__)

    # ``perseus_ds.set_straggler`` on the last rank: all ranks act on it.
    job.order("straggler 0 1.4")
    iteration = sees(iteration, slowed(1))
    job.order("straggler 0 1.0")
    sees(iteration, planned.__eq__)
    assert stopped_switched_on(job), job.log()
    assert "line 2: 'nonsense'" in job.log()


def test_a_given_profile_with_foreign_clocks_turns_perseus_off_with_one_line(start, tmp_path):
    profile = simulated_profile(SimulatorConfig(**SIMULATOR), stages=2)
    shifted = {
        key: tuple(point._replace(frequency_mhz=point.frequency_mhz + 7) for point in points)
        for key, points in profile.curves.items()
    }
    write_profile(Profile(shifted, "shifted"), tmp_path / "foreign.csv")
    job = start(iterations=10, profiling={"profile": str(tmp_path / "foreign.csv")})
    assert job.wait() == [0] * RANKS, job.log()
    assert job.log().count("is not a clock of this job's") == 1
    assert not any(result["on"] for result in job.results())
