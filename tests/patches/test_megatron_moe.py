"""Expert parallelism under Perseus: real megatron-core, two stages of two chunks, two expert-parallel ranks each."""

import json
from collections import Counter
from pathlib import Path

import pytest
from by_hand import by_hand

pytestmark = pytest.mark.launch

SCRIPT = Path(__file__).with_name("moe_train.py")
STEPS = 36
CONFIGURATION = """
run_dir: {run_dir}
warmup_iterations: 1
baseline_iterations: 4
profiling:
  max_iterations: 8
simulator:
  profile: gpt3-175b-a100-sxm
  stages: [4, 7]
  time_scale: 1.0
"""


def read(file: Path):
    return json.loads(file.read_text())


def train(directory: Path, *arguments, disable: str = "0") -> list[list[str]]:
    """Train under Perseus, or with it disabled; return each last-stage rank's losses."""
    directory.mkdir(parents=True)
    configuration, losses = directory / "perseus.yaml", directory / "losses.json"
    configuration.write_text(CONFIGURATION.format(run_dir=directory / "run"))
    perseus = ("-m", "perseus_ds", "run", SCRIPT, "--perseus", configuration)
    options = (*arguments, "--steps", STEPS, "--losses", losses)
    done = by_hand(4, *perseus, *options, PERSEUS_DS_DISABLE=disable, PYTHONPATH=str(SCRIPT.parent))
    assert done.returncode == 0, done.stdout
    return [read(losses.with_suffix(f".{replica}.json")) for replica in range(2)]


def planned_run(directory: Path, *options: str) -> tuple[Path, Counter[str]]:
    """Compare the losses with and without; return the run directory and the kinds of what its trace has."""
    without = train(directory / "without", *options, disable="1")
    awaited = directory / "with" / "run" / "frontier.json"
    assert train(directory / "with", *options, "--await", awaited) == without
    assert len(without[0]) == STEPS * 4
    run = directory / "with" / "run"
    kinds = Counter(row["kind"] for stage in read(run / "trace.json") for row in stage["operations"])
    assert '"enforcing"' in (run / "events.jsonl").read_text()
    summary = read(run / "summary.json")
    assert summary["pipelines"] == 1
    # What is measured in few iterations depends on the host: the plan must save.
    assert summary["predicted_saving"] > 0.01
    return run, kinds


def test_joint_passes_are_traced_and_planned_and_losses_bit_identical_with_and_without(tmp_path) -> None:
    run, kinds = planned_run(tmp_path, "--overlap", "--p2p-overlap")
    # Each stage begins with forwards alone and ends with backwards alone.
    assert kinds["forward_backward"] > 0
    assert kinds["forward"] == kinds["backward"] == 2 * 2 * 4 - kinds["forward_backward"]
    assert "forward_backward" in (run / "profile.csv").read_text()


def test_without_overlap_forwards_and_backwards_are_planned_apart(tmp_path) -> None:
    _, kinds = planned_run(tmp_path)
    assert (kinds["forward_backward"], kinds["forward"], kinds["backward"]) == (0, 16, 16)
