"""Zeus's plan files."""

from __future__ import annotations

from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.zeus import read_zeus_plan, write_zeus_plans
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return solve(Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), 83.64))


def test_zeus_plan_files_come_back_as_they_went(frontier: Frontier, tmp_path: Path) -> None:
    plans = [frontier.plan(frontier.t_min_s), frontier.plan(frontier.t_star_s)]
    files = write_zeus_plans(plans, tmp_path)
    assert [file.name for file in files] == ["freqs_pipeline_00000.py", "freqs_pipeline_00001.py"]
    fastest = read_zeus_plan(files[1], frontier.problem)
    assert fastest.frequency_mhz == plans[0].frequency_mhz
    assert fastest.time_s == pytest.approx(plans[0].time_s)


@pytest.mark.parametrize("text", ["", "[[('forward', 1410)]]", "__import__('os')", "[[('forward', 'x')]]", "(("])
def test_other_files_are_no_zeus_plans(frontier: Frontier, tmp_path: Path, text: str) -> None:
    file = tmp_path / "freqs_pipeline_00000.py"
    file.write_text(text)
    with pytest.raises(PerseusError, match="not a Zeus frequency plan"):
        read_zeus_plan(file, frontier.problem)
