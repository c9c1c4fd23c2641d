"""A job that follows ordered powers, under real launchers: DeepSpeed and Megatron-Core."""

import json
import os
import sys
from itertools import groupby

import pytest
from launching import DS_CONFIG, QUICK, ROOT, TRAIN, deepspeed_command, run, torchrun_command, write_config

from perseus_ds.config import SimulatorConfig
from perseus_ds.profiling.table import write_profile
from perseus_ds.runtime.simulation import simulated_profile

pytestmark = [
    pytest.mark.launch,
    # Beside other jobs, two cores stall ranks for seconds, and a rank that waits draws less than was ordered.
    pytest.mark.skipif("PERSEUS_DS_QUIET_HOST" not in os.environ, reason="no PERSEUS_DS_QUIET_HOST"),
    pytest.mark.against_the_clock("the measured power of iterations on two cores is compared with the target"),
]

FOLLOW = ROOT / "examples" / "power" / "follow.py"
MEGATRON = ROOT / "examples" / "megatron_gpt" / "train.py"
SIMULATOR = {**QUICK["simulator"], "time_scale": 0.4}
HELD, STEPS = 21, 96
SIGNAL = f"iterations,power\n4,100%\n{HELD},85%\n{HELD},70%\n100,100%\n"


def follow(framework: str, directory) -> dict[str, object]:
    """Run a job of two stages that follows the signal; return what its run directory tells."""
    write_profile(simulated_profile(SimulatorConfig(**SIMULATOR), stages=2), directory / "given.csv")
    config = write_config(
        directory,
        profiling={"profile": str(directory / "given.csv")},
        simulator=SIMULATOR,
        report={"log_every": 1},  # from these files the orders' author learns where the job is
    )
    (directory / "signal.csv").write_text(SIGNAL)
    arguments = ["--perseus", config, "--steps", STEPS, "--layers", 2]
    if framework == "deepspeed":
        job = deepspeed_command(2, "--module", "perseus_ds", "run", TRAIN, "--deepspeed_config", DS_CONFIG, *arguments)
    else:
        job = torchrun_command(2, "-m", "perseus_ds", "run", MEGATRON, *arguments)
    done = run([sys.executable, str(FOLLOW), str(directory / "run"), str(directory / "signal.csv"), "--", *job])
    assert done.returncode == 0, done.stdout
    return {name: json.loads((directory / "run" / f"{name}.json").read_text()) for name in ("summary", "iterations")}


@pytest.mark.parametrize("framework", ["deepspeed", "megatron"])
def test_the_mean_power_is_what_was_ordered_within_three_iterations(framework, tmp_path):
    found = follow(framework, tmp_path)
    rows = found["summary"]["power"]
    assert len(rows) == 2
    baseline_w = found["summary"]["baseline"]["power_w"] * found["summary"]["pipelines"]
    for row, share in zip(rows, (0.85, 0.70), strict=True):
        assert row["target_w"] == pytest.approx(share * baseline_w, rel=0.01)
        assert row["answered_iterations"] <= 3
        assert row["iterations"] >= 20
        assert not row["at_floor"]
        assert row["measured_w"] == pytest.approx(row["target_w"], rel=0.02)
        assert longest_above(found["iterations"], row, 1.05 * row["target_w"]) <= 3


def longest_above(iterations, row, limit_w: float) -> int:
    """Return the most iterations in a row that drew more than a limit while an order held."""
    held = range(row["begin_iteration"], row["begin_iteration"] + row["iterations"])
    known = [one for one in iterations if one["iteration"] in held and one["energy_j"]]
    above = [one["energy_j"] / one["iteration_time_s"] > limit_w for one in known]
    return max((len(list(group)) for is_above, group in groupby(above) if is_above), default=0)
