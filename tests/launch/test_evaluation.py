"""Two pipelines of two stages with evaluation and refreshed baselines in between, with Perseus and without."""

import json
from functools import cache

import pytest
from by_hand import by_hand
from launching import DS_CONFIG, TRAIN, write_config

from perseus_ds.report.rundata import read_events

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("a rank that starts late on a busy host is given up on"),
]

STEPS = 91


@pytest.fixture
def steps(attempt):
    """The solver gives way to whatever else runs here: on a busy host it may need a longer job."""
    return attempt * STEPS


@pytest.fixture
def job(tmp_path_factory, attempt, steps):
    return train(tmp_path_factory.getbasetemp() / f"evaluation-{attempt}", steps)


@cache
def train(directory, steps):
    directory.mkdir()
    config = write_config(directory, baseline_every=3)
    command = ["-m", "perseus_ds", "run", TRAIN, "--perseus", config, "--deepspeed_config", DS_CONFIG]
    command += ["--stages", 2, "--steps", steps, "--eval-every", 7, "--layers", 2]
    done = by_hand(4, *command, "--losses", directory / "with.json")
    assert done.returncode == 0, done.stdout
    without = by_hand(4, *command, "--losses", directory / "without.json", PERSEUS_DS_DISABLE="1")
    assert without.returncode == 0, without.stdout
    return directory


def test_evaluation_neither_breaks_nor_counts(job, steps):
    iterations = json.loads((job / "run" / "iterations.json").read_text())
    assert [row["iteration"] for row in iterations] == list(range(steps))
    assert iterations[-1]["phase"] in ("enforcing", "baseline")


def test_the_baseline_is_refreshed_among_the_plan_s_iterations(job):
    refreshed = [event for event in read_events(job / "run") if event["event"] == "baseline"]
    assert refreshed
    assert all(0.0 < event["saving"] < 0.4 for event in refreshed)


def test_losses_of_training_and_evaluation_are_bit_identical_with_and_without(job, steps):
    losses = json.loads((job / "with.json").read_text())
    assert losses == json.loads((job / "without.json").read_text())
    assert len(losses) == steps + steps // 7
