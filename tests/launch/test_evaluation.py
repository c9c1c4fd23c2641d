"""Two pipelines of two stages with evaluation in between, with Perseus and without."""

import json

import pytest
from by_hand import by_hand
from launching import DS_CONFIG, TRAIN, write_config

pytestmark = pytest.mark.launch

STEPS = 35


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    directory = tmp_path_factory.mktemp("evaluation")
    command = ["-m", "perseus_ds", "run", TRAIN, "--perseus", write_config(directory), "--deepspeed_config", DS_CONFIG]
    command += ["--stages", 2, "--steps", STEPS, "--eval-every", 7, "--layers", 2]
    done = by_hand(4, *command, "--losses", directory / "with.json")
    assert done.returncode == 0, done.stdout
    without = by_hand(4, *command, "--losses", directory / "without.json", PERSEUS_DS_DISABLE="1")
    assert without.returncode == 0, without.stdout
    return directory


def test_evaluation_neither_breaks_nor_counts(job):
    iterations = json.loads((job / "run" / "iterations.json").read_text())
    assert [row["iteration"] for row in iterations] == list(range(STEPS))
    assert iterations[-1]["phase"] == "enforcing"


def test_losses_of_training_and_evaluation_are_bit_identical_with_and_without(job):
    losses = json.loads((job / "with.json").read_text())
    assert losses == json.loads((job / "without.json").read_text())
    assert len(losses) == STEPS + STEPS // 7
