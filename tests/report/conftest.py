"""A plan of the shipped profile, for whatever draws it."""

import pytest

from perseus_ds.frontier import Problem, solve
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile
from perseus_ds.runtime.simulation import profile_file


@pytest.fixture(scope="session")
def problem():
    profile = read_profile(profile_file("gpt3-175b-a100-sxm"))
    return Problem(schedule_dag("1f1b", profile.stages, 8), profile, 83.64, gpus_per_stage=2)


@pytest.fixture(scope="session")
def plan(problem):
    frontier = solve(problem)
    return frontier.plan(frontier.t_min_s)
