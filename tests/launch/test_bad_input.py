"""Mistakes end with one line and exit code 2, before anything trains."""

import json
import os
import subprocess
import sys

import pytest
from launching import DS_CONFIG, TRAIN, deepspeed_command, environment, run, torchrun_command, write_config

pytestmark = pytest.mark.launch


def run_alone(*arguments) -> subprocess.CompletedProcess[str]:
    """What one rank does, without a launcher: mistakes are found before the ranks meet."""
    command = [sys.executable, "-m", "perseus_ds", "run", *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


def test_missing_configuration(tmp_path):
    assert_one_line(run_alone(TRAIN, "--perseus", tmp_path / "none.yaml"), "none.yaml", "[config-missing]")


def test_script_that_does_not_exist(tmp_path):
    done = run_alone(tmp_path / "train.py", "--perseus", write_config(tmp_path))
    assert_one_line(done, "train.py", "[script-missing]")


def test_option_without_value():
    assert_one_line(run_alone(TRAIN, "--perseus"), "--perseus", "[option-without-value]")


def test_negative_power(tmp_path):
    config = write_config(tmp_path, simulator={"blocking_power_w": -1})
    assert_one_line(run_alone(TRAIN, "--perseus", config), "simulator.blocking_power_w", "-1", "greater than 0")


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc/self"), reason="needs an unwritable path")
def test_run_directory_not_writable(tmp_path):
    config = write_config(tmp_path, run_dir="/proc/perseus")
    assert_one_line(run_alone(TRAIN, "--perseus", config), "/proc/perseus", "[run-dir-not-writable]")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("stage,instruction,frequency,time\n0,forward,1410,0.1\n", ["energy", "[profile-missing-column]"]),
        ("stage,instruction,frequency,time,energy\n0,forward,1410,nan,9\n", ["row 2", "time", "nan"]),
        ("stage,instruction,frequency,time,energy\n0,forward,1410,-1,9\n", ["row 2", "time", "-1"]),
        ("stage,instruction,frequency,time,energy\n0,forward,1410,0.1,9\n", ["backward", "[profile-missing-curve]"]),
    ],
)
def test_broken_profile(tmp_path, text, parts):
    profile = tmp_path / "profile.csv"
    profile.write_text(text)
    config = write_config(tmp_path, simulator={"profile": str(profile)})
    assert_one_line(run_alone(TRAIN, "--perseus", config), "profile.csv", *parts)


def test_through_the_launcher_the_line_is_printed_once_and_the_job_fails(tmp_path):
    config = write_config(tmp_path, run_dri="typo")
    done = run(
        deepspeed_command(
            2, "--module", "perseus_ds", "run", TRAIN, "--perseus", config, "--deepspeed_config", DS_CONFIG
        )
    )
    assert done.returncode != 0
    assert done.stdout.count("[config-unknown-key]") == 1
    assert "loss" not in done.stdout


def test_the_line_is_printed_even_where_rank_0_is_the_last_to_start(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os, time\nif os.environ.get('RANK') == '0':\n    time.sleep(4)")
    config = write_config(tmp_path, run_dri="typo")
    done = run(torchrun_command(2, "-m", "perseus_ds", "run", TRAIN, "--perseus", config), PYTHONPATH=str(tmp_path))
    assert done.stdout.count("[config-unknown-key]") == 1


def test_wrong_section_of_the_deepspeed_json(tmp_path):
    ds_config = tmp_path / "ds.json"
    section = {"run_dir": str(tmp_path / "run"), "mode": "fast"}
    ds_config.write_text(json.dumps({**json.loads(DS_CONFIG.read_text()), "perseus": section}))
    done = run(deepspeed_command(2, "--module", "perseus_ds", "run", TRAIN, "--deepspeed_config", ds_config))
    assert done.returncode != 0
    assert "mode" in done.stdout
    assert "[config-bad-value]" in done.stdout
    assert "step 10" not in done.stdout
