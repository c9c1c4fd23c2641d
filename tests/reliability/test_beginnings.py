"""What goes wrong before the first iteration: Perseus begins later, or one line says why it does not."""

import fcntl
import os
import subprocess
import sys
import time
import uuid

import jobs
import launching
import pytest
from jobs import BUS_TIMEOUT_S

from perseus_ds.config import SimulatorConfig

FRAMEWORKS = pytest.mark.parametrize("framework", ["deepspeed", "megatron"])


@pytest.fixture
def start(tmp_path):
    started = []

    def start(framework, **settings):
        started.append(jobs.by_hand(tmp_path / "job", framework, **settings))
        return started[-1]

    yield start
    for job in started:
        job.kill()


@pytest.mark.launch
@pytest.mark.against_the_clock("a busy host delays ranks as a fault does")
@FRAMEWORKS
@pytest.mark.fault(
    "A rank comes to its first iteration later than `bus_timeout_s`, and a GPU is still held by another job",
    "the training begins without Perseus, with one line each; all ranks try again 10 iterations later",
)
def test_what_hinders_the_first_iteration_hinders_no_later_one(framework, start, recovered, tmp_path):
    gpu = uuid.uuid5(uuid.NAMESPACE_OID, f"{SimulatorConfig().seed}:0")
    lock = tmp_path / "job" / "run" / "gpus" / f"perseus-ds-GPU-{gpu}.lock"
    lock.parent.mkdir(parents=True)
    holder = lock.open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    job = start(framework)
    job.order(f"pause 1 {2 * BUS_TIMEOUT_S}")
    job.until(lambda: job.log().count("[attach-again]") == 2, "two failures")
    assert job.log().count("[round-overdue]") == job.log().count("[gpu-taken]") == 1
    fcntl.flock(holder, fcntl.LOCK_UN)
    freed_s = time.time()
    recovered(f"begins after {job.begins() - freed_s:.1f} s")
    job.enforces()


def run_alone(framework: str, config) -> subprocess.CompletedProcess[str]:
    script = launching.ROOT / "examples" / f"{framework}_gpt" / "train.py"
    command = [sys.executable, "-m", "perseus_ds", "run", str(script), "--perseus", str(config)]
    return subprocess.run(command, env=launching.environment(), capture_output=True, text=True, timeout=60, check=False)


def deeply_nested(directory):
    config = directory / "perseus.yaml"
    config.write_text("run_dir: " + "[" * 5000)
    return config


def fifo_as_profile(directory):
    os.mkfifo(directory / "profile.csv")
    return jobs.prepare(directory, profiling={"profile": str(directory / "profile.csv")})


def endless_profile(directory):
    return jobs.prepare(directory, profiling={"profile": "/dev/zero"})


def bad(fault: str, make, code: str):
    return pytest.param(make, code, marks=pytest.mark.fault(fault, "one line, exit code 2, before any training"))


@FRAMEWORKS
@pytest.mark.parametrize(
    ("make", "code"),
    [
        bad("Deeply nested YAML", deeply_nested, "[config-not-yaml]"),
        bad("A FIFO as `profiling.profile`", fifo_as_profile, "[profile-unreadable]"),
        bad("`/dev/zero` as `profiling.profile`", endless_profile, "[profile-unreadable]"),
    ],
)
def test_a_bad_file_ends_the_job_with_one_line(framework, make, code, tmp_path, recovered):
    done = run_alone(framework, make(tmp_path))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.endswith(code)
    recovered("–")
