"""Every way in that the README names, through the real launchers: each must end with a plan in force."""

import json

import pytest
from launching import DS_CONFIG, TRAIN, deepspeed_command, run, torchrun_command, write_config

pytestmark = pytest.mark.launch

BY_HAND = f"""
import runpy, sys
import perseus_ds
perseus_ds.install({{config!r}})
sys.argv[0] = {str(TRAIN)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

WITH_ARGUMENT = f"""
import argparse, runpy, sys
import perseus_ds
parser = perseus_ds.add_config_arguments(argparse.ArgumentParser())
_, rest = parser.parse_known_args()
sys.argv = [{str(TRAIN)!r}, *rest]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

STEPS = 80
SIZE = ("--steps", STEPS, "--layers", 2)


def with_run_command(directory):
    config = write_config(directory)
    return deepspeed_command(
        2, "--module", "perseus_ds", "run", TRAIN, "--perseus", config, "--deepspeed_config", DS_CONFIG, *SIZE
    )


def with_install(directory):
    script = directory / "by_hand.py"
    script.write_text(BY_HAND.format(config=str(write_config(directory))))
    return torchrun_command(2, script, "--deepspeed_config", DS_CONFIG, *SIZE)


def with_argument(directory):
    script = directory / "with_argument.py"
    script.write_text(WITH_ARGUMENT)
    return deepspeed_command(2, script, "--perseus", write_config(directory), "--deepspeed_config", DS_CONFIG, *SIZE)


def with_section_and_torchrun(directory):
    import yaml

    section = yaml.safe_load(write_config(directory).read_text())
    ds_config = directory / "ds.json"
    ds_config.write_text(json.dumps({**json.loads(DS_CONFIG.read_text()), "perseus": section}))
    return torchrun_command(2, "-m", "perseus_ds", "run", TRAIN, "--deepspeed_config", ds_config, *SIZE)


@pytest.mark.parametrize("way", [with_run_command, with_install, with_argument, with_section_and_torchrun])
def test_a_plan_is_in_force_at_the_end(way, tmp_path, attempt):
    # The solver gives way to whatever else runs here: on a busy host it may need a longer job.
    done = run([*way(tmp_path), "--steps", str(attempt * STEPS)])
    assert done.returncode == 0, done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["simulated"] is True
    assert summary["framework"].startswith("deepspeed ")
    assert summary["measured"]["energy_j"] > 0, done.stdout
    assert "simulated GPUs" in done.stdout


def test_the_switch_turns_everything_off(tmp_path):
    done = run(with_section_and_torchrun(tmp_path), PERSEUS_DS_DISABLE="1")
    assert done.returncode == 0, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "perseus_ds]" in line]
    assert line.endswith("[disabled]")
    assert not (tmp_path / "run").exists()
