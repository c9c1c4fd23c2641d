"""The report of a real run: what its page says, in a real browser."""

import shutil

import pytest
from browsing import CHROMIUM, Figures, complaints_and_figures, summary_figures

from perseus_ds.report.page import render, write_report
from perseus_ds.report.rundata import read_run


@pytest.mark.launch
def test_a_run_leaves_a_self_contained_report_whose_figures_are_the_summary_s(finished_run):
    text = (finished_run / "report.html").read_text()
    page = Figures(text)
    assert page.values == summary_figures(finished_run)
    assert page.loaded == ["data:,"]
    assert "simulated GPUs" in text
    assert page.charts >= 10, "frontier, two timelines, power, two histories, and two per stage"


@pytest.mark.launch
def test_a_chart_that_would_take_minutes_is_left_out_and_the_report_says_so(finished_run, monkeypatch):
    monkeypatch.setattr("perseus_ds.report.page._FEW_INSTRUCTIONS", 10)
    data = read_run(finished_run)
    assert f"Omitted: with {len(data.problem.dag.instructions)} instructions" in render(data)


@pytest.mark.launch
def test_the_report_can_be_made_again_from_the_run_directory_alone(finished_run, tmp_path):
    copy = shutil.copytree(finished_run, tmp_path / "copy")
    (copy / "report.html").unlink()
    written = write_report(copy)
    assert Figures(written.read_text()).values == summary_figures(finished_run)


@pytest.mark.launch
def test_the_rebuilt_plan_is_the_one_that_ran(finished_run):
    data = read_run(finished_run)
    assert data.plan.time_s == pytest.approx(data.planned["time_s"])
    ((planned_s, planned_j),) = {
        (row["planned_time_s"], row["planned_energy_j"]) for row in data.iterations if row["planned_time_s"]
    }
    assert (data.plan.time_s, data.plan.energy_j) == (pytest.approx(planned_s), pytest.approx(planned_j))


@pytest.mark.launch
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")
@pytest.mark.parametrize("theme", [[], ["--blink-settings=preferredColorScheme=0"]], ids=["light", "dark"])
def test_a_browser_shows_the_report_without_a_complaint(finished_run, tmp_path, theme):
    assert complaints_and_figures(finished_run, tmp_path, *theme) == ([], summary_figures(finished_run))
