"""``import perseus_ds.megatron`` and ``--perseus`` in scripts that know Megatron's arguments."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from by_hand import by_hand

EXAMPLE = Path(__file__).parents[2] / "examples" / "megatron_gpt"
MEGATRON_LM = Path(__file__).with_name("megatron_lm")
CONFIGURATION = """
run_dir: {run_dir}
warmup_iterations: 1
baseline_iterations: 2
profiling:
  max_iterations: 8
simulator:
  profile: gpt3-175b-a100-sxm
  stages: [4, 7]
  time_scale: 0.2
"""
# A busy host would change the baseline: refreshes and drifts have tests of their own.
ONE_BASELINE = """
baseline_every: 0
straggler:
  drift_iterations: 1000
"""
SCRIPT = """
import perseus_ds.megatron
from megatron.training.arguments import parse_args
args = parse_args()
print(args.lr, args.perseus)
"""


def read(file: Path):
    return json.loads(file.read_text())


@pytest.fixture
def run_script(tmp_path):
    """Runs a script with the one line, beside Megatron-LM's argument parser."""
    package = tmp_path / "megatron" / "training"
    package.mkdir(parents=True)
    shutil.copy(MEGATRON_LM / "megatron" / "training" / "arguments.py", package)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "perseus.yaml").write_text(CONFIGURATION.format(run_dir=tmp_path / "run"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "train.py", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def test_help_of_megatron_lists_the_option(run_script) -> None:
    assert run_script("--help").stdout.count("--perseus FILE") == 2, "in the usage and among the options"


def test_help_of_an_older_megatron_lists_it_too(run_script, tmp_path) -> None:
    arguments = tmp_path / "megatron" / "training" / "arguments.py"
    arguments.write_text(arguments.read_text().replace("add_megatron_arguments", "_add_all_at_once"))
    assert run_script("--help").stdout.count("--perseus FILE") == 2


@pytest.mark.parametrize("option", [("--perseus", "perseus.yaml"), ("--perseus=perseus.yaml",)])
def test_option_is_accepted_and_the_others_reach_megatron(run_script, option) -> None:
    done = run_script("--lr", "0.1", *option)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.1 None\n"


def test_without_the_option_the_script_runs_as_ever(run_script) -> None:
    assert run_script("--lr", "0.1").stdout == "0.1 None\n"


def test_a_wrong_configuration_is_one_line_and_exit_code_2(run_script) -> None:
    done = run_script("--perseus", "missing.yaml")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("perseus_ds: missing.yaml: no such configuration file")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    """Two interleaved stages of ``pretrain_gpt.py``, evaluation in between, with Perseus and without.

    Real megatron-core, GPTModel, DDP and optimizer; all that is added to the script is the drop-in's line.
    """
    directory = tmp_path_factory.mktemp("pretrain_gpt")
    shutil.copytree(MEGATRON_LM, directory, dirs_exist_ok=True)
    script, configuration = directory / "pretrain_gpt.py", directory / "perseus.yaml"
    script.write_text("import perseus_ds.megatron\n" + script.read_text())
    configuration.write_text(CONFIGURATION.format(run_dir=directory / "run") + ONE_BASELINE)
    for disable in ("0", "1"):
        done = by_hand(
            2, script, "--perseus", configuration, "--text", EXAMPLE / "sonnets.txt",
            "--chunks", 2, "--train-iters", 108, "--eval-interval", 12, "--wandb-project", "gpt",
            "--losses", directory / f"losses-{disable}.json", "--tensorboard-dir", directory / f"tensorboard-{disable}",
            PERSEUS_DS_DISABLE=disable, PYTHONPATH=str(EXAMPLE), WANDB_ROWS=str(directory / f"wandb-{disable}.json"),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    return directory


@pytest.mark.launch
def test_losses_of_pretrain_gpt_are_bit_identical_with_and_without(pretrained) -> None:
    with_perseus, without = (read(pretrained / f"losses-{disable}.json") for disable in "01")
    assert with_perseus == without
    assert len(without) == 117
    assert '"enforcing"' in (pretrained / "run" / "events.jsonl").read_text()


@pytest.mark.launch
def test_evaluation_does_not_count(pretrained) -> None:
    assert len(read(pretrained / "run" / "iterations.json")) == 108


@pytest.mark.launch
def test_metrics_join_megatron_s_own_in_tensorboard_and_wandb(pretrained) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorded = read(pretrained / "run" / "iterations.json")
    events = EventAccumulator(str(pretrained / "tensorboard-0"))
    events.Reload()
    assert len(events.Scalars("loss")) == 108
    energies_j = {event.step: event.value for event in events.Scalars("perseus_ds/energy_joules")}
    assert len(energies_j) > 90
    # Once there are powers, the run directory tells what the counter has missed of the baseline.
    baseline = {number for number, row in enumerate(recorded) if row["phase"] == "baseline"}
    as_counted = {step: energy_j for step, energy_j in energies_j.items() if step - 1 not in baseline}
    assert len(as_counted) > 50
    assert as_counted == {step: pytest.approx(recorded[step - 1]["energy_j"], rel=1e-5) for step in as_counted}

    rows, without = read(pretrained / "wandb-0.json"), read(pretrained / "wandb-1.json")
    assert [(row["_step"], row["loss"]) for row in rows] == [(row["_step"], row["loss"]) for row in without]
    ours = [row for row in rows if "perseus_ds/energy_joules" in row]
    assert [row["perseus_ds/iteration"] for row in ours] == list(energies_j)
    counted_j = [recorded[number]["energy_j"] for number in sorted(baseline) if recorded[number]["steady"]]
    baseline_j = ours[-1]["perseus_ds/energy_joules"] / (1 - ours[-1]["perseus_ds/saving_ratio"])
    assert baseline_j == pytest.approx(median(counted_j))
