"""A rank that pauses, or a keeper that dies, under a real launcher: the plan comes back, and the losses stay."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from by_hand import by_hand
from launching import DS_CONFIG, QUICK, TRAIN, deepspeed_command, environment, run, write_config

from perseus_ds.config import SimulatorConfig
from perseus_ds.profiling.table import write_profile
from perseus_ds.report.rundata import read_events
from perseus_ds.runtime.simulation import simulated_profile
from perseus_ds.simulator.gpu import VirtualGpu
from perseus_ds.simulator.state import state_paths

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("a rank that starts late on a busy host is given up on"),
]

STEPS, BUS_TIMEOUT_S, PAUSE_S = 32, 4.0, 8.0
# The last rank pauses once between two iterations, as for a checkpoint that it alone writes.
SCRIPT = """
import runpy, sys, time
from pathlib import Path
from deepspeed.runtime.pipe.engine import PipelineEngine
run, original, batches = Path(RUN), PipelineEngine.train_batch, []
def enforces():
    return '"enforcing"' in (run / "events.jsonl").read_text()
def train_batch(engine, *args, **kwargs):
    if engine.global_rank == 1 and len(batches) % 4 == 3 and not (run / "paused").exists() and enforces():
        (run / "paused").write_text(str(len(batches)))
        time.sleep(PAUSE_S)
    batches.append(1)
    return original(engine, *args, **kwargs)
PipelineEngine.train_batch = train_batch
sys.argv[0] = TRAIN
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_after_a_pause_beyond_the_time_out_the_plan_is_soon_in_force_on_all_ranks_again(tmp_path):
    profiling = {"profile": str(given_profile(tmp_path))}
    config = write_config(tmp_path, bus_timeout_s=BUS_TIMEOUT_S, profiling=profiling)
    script = tmp_path / "pausing.py"
    script.write_text(f"RUN, TRAIN, PAUSE_S = {str(tmp_path / 'run')!r}, {str(TRAIN)!r}, {PAUSE_S}\n{SCRIPT}")
    arguments = ["--deepspeed_config", DS_CONFIG, "--steps", STEPS, "--layers", 2, "--losses"]
    ours = ["--module", "perseus_ds", "run", script, "--perseus", config, *arguments, tmp_path / "losses.json"]
    done = run(deepspeed_command(2, *ours), PERSEUS_DS_LOG_LEVEL="DEBUG")
    assert done.returncode == 0, done.stdout

    paused_at = int((tmp_path / "run" / "paused").read_text())
    told = [event for event in read_events(tmp_path / "run") if event["event"] in ("paused", "rejoined")]
    assert [event["event"] for event in told] == ["paused", "rejoined"], done.stdout
    back_at = told[1]["iteration"]
    assert back_at <= paused_at + 5
    for rank in range(2):
        assert f"rank {rank}: iteration {back_at}: is back" in done.stdout
    rows = {row["iteration"]: row for row in json.loads((tmp_path / "run" / "iterations.json").read_text())}
    assert {rows[at]["phase"] for at in range(back_at, STEPS)} == {"enforcing"}
    assert sum(row["phase"] == "profiling" for row in rows.values()) == sum(
        row["phase"] == "profiling" for at, row in rows.items() if at < paused_at
    )
    assert done.stdout.count("[paused]") == 1
    assert "[switched-off]" not in done.stdout

    without = by_hand(2, TRAIN, *arguments, tmp_path / "without.json")
    assert without.returncode == 0, without.stdout
    assert json.loads((tmp_path / "losses.json").read_text()) == json.loads((tmp_path / "without.json").read_text())


def test_a_keeper_that_is_killed_is_started_again_and_its_clocks_follow_the_plan(tmp_path):
    config = write_config(tmp_path, profiling={"profile": str(given_profile(tmp_path))})
    ours = ["--module", "perseus_ds", "run", TRAIN, "--perseus", config, "--deepspeed_config", DS_CONFIG]
    with (tmp_path / "output.txt").open("w") as output:
        command = deepspeed_command(2, *ours, "--steps", 500, "--layers", 2)
        launcher = subprocess.Popen(command, env=environment(), stdout=output, stderr=output, start_new_session=True)
    try:
        waits_for(tmp_path, "phase", lambda event: event["phase"] == "enforcing")
        keepers(launcher)[0].kill()
        gone = waits_for(tmp_path, "keepers", lambda event: event["missing"] == 1)
        waits_for(tmp_path, "keepers", lambda event: event["missing"] == 0 and event["time"] > gone["time"])
        gpus = [VirtualGpu(path) for path in state_paths(tmp_path / "run" / "gpus")]
        asked = [gpu.requests()[0] for gpu in gpus]
        deadline_s = time.monotonic() + 60.0
        while any(gpu.requests()[0] < before + 5 for gpu, before in zip(gpus, asked, strict=True)):
            assert time.monotonic() < deadline_s, "a keeper sets no clock"
            time.sleep(0.1)
        assert len(keepers(launcher)) == 2
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
    told = (tmp_path / "output.txt").read_text()
    assert told.count("[keeper-gone]") == told.count("[keeper-back]") == 1
    deadline_s = time.monotonic() + 5.0
    while any(gpu.is_locked() for gpu in gpus):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def keepers(launcher: subprocess.Popen) -> list[psutil.Process]:
    everybody = psutil.Process(launcher.pid).children(recursive=True)
    return [one for one in everybody if "perseus_ds.device.keeper" in " ".join(one.cmdline())]


def waits_for(directory, kind: str, seen) -> dict:
    """Wait for an event, and return it."""
    deadline_s = time.monotonic() + 120.0
    while time.monotonic() < deadline_s:
        for event in read_events(directory / "run"):
            if event["event"] == kind and seen(event):
                return event
        time.sleep(0.1)
    pytest.fail(f"no {kind} as wanted: {(directory / 'output.txt').read_text()}")


def given_profile(directory):
    """Write the simulated GPUs' own profile: nothing needs to be measured."""
    simulated = simulated_profile(SimulatorConfig(**QUICK["simulator"]), stages=2)
    write_profile(simulated, directory / "given.csv")
    return directory / "given.csv"
