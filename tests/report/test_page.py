"""The page of a made-up job, from the files that a real recorder and a real coordinator leave behind."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from browsing import Figures, summary_figures
from made_up_job import TOPOLOGY, first_book, make

from perseus_ds.config import Config
from perseus_ds.coordination.events import (
    IterationBegan,
    JobEnded,
    PhaseEntered,
    PlansAdopted,
    PlanSwitched,
    RoundHeard,
    StragglerChanged,
)
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.report.page import render, write_report
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.rundata import read_run
from perseus_ds.rundir import RunDirectory

STAGES = TOPOLOGY.stages


class Job:
    """A job that trains as its events say."""

    def __init__(self, path) -> None:
        self.path, self.directory = path, RunDirectory(path)
        config = Config(run_dir=path, report={"html": False, "log_every": 0})
        self.recorder = RunRecorder(config, TOPOLOGY, self.directory, {"name": "<an odd> GPU"})
        self.iteration = 0

    def trains(self, count: int, phase: Phase, time_s: float, energy_j: float, plans=()) -> None:
        self.recorder(PhaseEntered(self.iteration, phase))
        for _ in range(count):
            self.recorder(IterationBegan(self.iteration, phase, bool(plans), plans))
            rank = RankStatus(self.iteration, time_s, energy_j / STAGES, switches=4.0).row()
            row = condense(np.array([rank] * STAGES), STAGES)
            self.recorder(RoundHeard(self.iteration + 2, RoundResult(row[None], STAGES), plans, time_s))
            self.iteration += 1

    def ends(self, phase: Phase):
        self.recorder(
            JobEnded(phase, {"requests": 5, "not_reached": 1, "latency_by_clock": {"915": [7, 0.0125, 0.0375]}})
        )
        assert self.directory.flush()
        return read_run(self.path)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A job that was profiled, planned, slowed down by a straggler, and ended under its plan."""
    job = Job(tmp_path_factory.mktemp("run") / "job <1>")
    table = first_book(make(job.path, job.directory))
    plans = table.choose(np.ones((1, STAGES)))
    job.trains(8, Phase.BASELINE, 1.6, 1000.0)
    job.recorder(PlansAdopted(job.iteration, table, None))
    job.recorder(PlanSwitched(job.iteration, plans))
    job.trains(20, Phase.ENFORCING, 1.632, 850.0, plans)
    job.recorder(StragglerChanged(job.iteration, job.iteration - 1, ((1.0, 1.3),), ((0, 2),), 2.1))
    job.trains(3, Phase.ENFORCING, 2.1, 990.0, plans)
    return job.ends(Phase.ENFORCING)


class Text(HTMLParser):
    """What a reader reads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def read(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(Text(page.partition("</style>")[2]).parts))


def test_a_planned_run_shows_all_of_its_figures_in_full(planned):
    page = render(planned)

    assert Figures(page).values == summary_figures(planned.path)
    assert planned.summary["saving"] == pytest.approx(0.15)
    text = read(page)
    assert re.search(r"\+15\.00 % energy saved, measured 95 % confidence: \+15\.00 % to \+15\.00 %", text)
    assert re.search(r"\+2\.00 % iteration time", text)
    frontier = json.loads((planned.path / "frontier.json").read_text())
    assert f"{frontier['t_min_s']:.4f} s" in text
    assert f"{frontier['breakpoints']} breakpoints" in text


def test_a_planned_run_is_drawn_before_and_after_beside_other_planners(planned):
    page = render(planned)

    assert Figures(page).charts == 1 + 1 + 3 + 2 + 2 * STAGES  # frontier, switches, timelines and power, run, profile
    text = read(page)
    for planner in ("Perseus, the chosen plan", "EnvPipe", "Zeus global", "Zeus per stage"):
        assert planner in text
    for title in ("One iteration before and after", "The run", "Stragglers", "Profile", "Events"):
        assert title in text
    assert "not reached 1" in text, "how the GPU followed its clock requests"
    assert "915 7 0.0125 0.0375" in text, "how long switches to each clock took"


def test_names_from_outside_are_text_and_nothing_is_loaded(planned):
    page = render(planned)

    assert "<an odd>" not in page
    assert "<an odd> GPU" in read(page)
    assert "job <1>" in read(page)
    assert Figures(page).loaded == ["data:,"]


def test_events_are_listed_with_their_time_and_what_they_say(planned):
    text = read(render(planned))

    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 8 plans version 1", text)
    assert re.search(r" 28 straggler pipeline 0, stage 1, slowdown 1\.3", text)


def test_a_run_that_has_only_begun_says_that_nothing_was_measured_yet(tmp_path):
    job = Job(tmp_path / "run")
    job.trains(2, Phase.WARMUP, 1.6, 1000.0)

    page = render(job.ends(Phase.WARMUP))

    text = read(page)
    assert "No plan was active for long enough to measure it." in text
    assert Figures(page).values["saving"] is None
    assert Figures(page).charts == 2
    for title in ("Frontier", "One iteration before and after", "Profile", "Stragglers"):
        assert title not in text
    assert "one pipeline of 2 stages" in text


def test_measured_energy_is_set_against_the_predicted_one(planned):
    predicted, measured = planned.summary["predicted"], planned.summary["measured"]
    rows = re.findall(r"<tr><td>energy per iteration, one pipeline</td>(.*?)</tr>", render(planned))

    (cells,) = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows]
    off = 100 * (measured["energy_j"] / predicted["energy_j"] - 1)
    assert cells[:3] == ["1000.0 J", f"{predicted['energy_j']:.1f} J", "850.0 J"]
    assert float(cells[3].split()[0]) == pytest.approx(off, abs=0.006)


def test_the_page_is_written_beside_the_files_it_was_made_from(planned):
    file = write_report(planned.path)

    assert file == planned.path / "report.html"
    assert file.read_text() == render(planned)
