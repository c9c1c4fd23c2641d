"""A measured pipeline."""

from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Problem
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"


@pytest.fixture(scope="session")
def gpt3() -> Problem:
    """GPT-3 175B on A100: 8 stages, 12 micro-batches, instructions of 50 to 150 ms."""
    return Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), 83.64)
