"""Whatever way the trainers end, the clocks are reset within a second."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from launching import DS_CONFIG, TRAIN, deepspeed_command, environment, write_config

from perseus_ds.simulator.gpu import VirtualGpu
from perseus_ds.simulator.state import state_paths

pytestmark = [pytest.mark.launch, pytest.mark.against_the_clock("clocks must be reset within a second of a death")]


@pytest.fixture
def enforcing_job(tmp_path):
    """A job with a plan in force; yields the launcher and the GPUs."""
    command = ["--module", "perseus_ds", "run", TRAIN, "--perseus", write_config(tmp_path)]
    command += ["--deepspeed_config", DS_CONFIG, "--steps", 500, "--layers", 2]
    launcher = subprocess.Popen(
        deepspeed_command(2, *command),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    events = tmp_path / "run" / "events.jsonl"
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        if events.exists() and any('"enforcing"' in line for line in events.read_text().splitlines()):
            break
        assert launcher.poll() is None, "the job has ended early"
        time.sleep(0.2)
    else:
        pytest.fail("no plan within two minutes")
    gpus = [VirtualGpu(path) for path in state_paths(tmp_path / "run" / "gpus")]
    assert any(gpu.is_locked() for gpu in gpus)
    yield launcher, gpus
    if launcher.poll() is None:
        os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()


def trainers(launcher: subprocess.Popen) -> list[psutil.Process]:
    """The processes that run the script; the clock keepers are not among them."""
    return [
        process
        for process in psutil.Process(launcher.pid).children(recursive=True)
        if "perseus_ds.device.keeper" not in " ".join(process.cmdline())
        and "--local_rank" in " ".join(process.cmdline())
    ]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_clocks_are_reset_within_a_second_and_the_summary_can_be_read(enforcing_job, how, tmp_path):
    launcher, gpus = enforcing_job
    victims = trainers(launcher)
    assert len(victims) >= 2
    for victim in victims:
        victim.send_signal(how)
    killed_s = time.monotonic()
    while any(gpu.is_locked() for gpu in gpus) and time.monotonic() - killed_s < 5.0:
        time.sleep(0.01)
    assert not any(gpu.is_locked() for gpu in gpus)
    assert time.monotonic() - killed_s < 1.0 + 1.0 * (how is signal.SIGTERM)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["baseline"]["energy_j"] > 0
