"""Trainer and keeper killed together: the node's service resets the clocks, or without one the next start."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from test_keeper_deaths import TRAINER
from waiting import wait_for

from perseus_ds.commands.gpu_checks import check_clock_service
from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.lease import hold, lease_directory, orphans

pytestmark = pytest.mark.against_the_clock("the service shall be done within two seconds")


@pytest.fixture
def service(gpu):
    """The node's service, in a process of its own."""
    command = [sys.executable, "-m", "perseus_ds", "clock-service"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("clocks whose holder is gone are reset")
    yield process
    process.terminate()
    assert process.wait(10.0) == 0


@pytest.fixture
def killed_job(gpu):
    """Kills a trainer and its keeper, which have locked a clock, at the same moment."""
    trainers = []

    def kill(restore_mhz=None):
        program = [sys.executable, "-c", TRAINER.format(end="", restore_mhz=restore_mhz)]
        trainer = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        trainers.append(trainer)
        keeper_pid = int(trainer.stdout.readline())
        wait_for(lambda: gpu.sm_clock_mhz() == 900)
        os.kill(keeper_pid, signal.SIGKILL)
        trainer.kill()
        trainer.wait()
        return keeper_pid

    yield kill
    for trainer in trainers:
        with suppress(ProcessLookupError):
            trainer.kill()
        trainer.communicate()


def test_with_the_service_the_clocks_are_reset_within_two_seconds(gpu, service, killed_job):
    keeper_pid = killed_job()
    assert wait_for(lambda: not gpu.is_locked()) < 2.0
    assert f"its holder {keeper_pid} is gone; clocks reset" in service.stdout.readline()
    wait_for(lambda: not orphans(lease_directory()))
    assert check_clock_service().status == "good"


def test_with_the_service_an_operator_s_lock_is_put_back(gpu, service, killed_job):
    killed_job(restore_mhz=1200)
    assert wait_for(lambda: gpu.sm_clock_mhz() == 1200) < 2.0
    assert gpu.is_locked()


def test_without_the_service_the_next_start_resets_them(gpu, killed_job):
    killed_job()
    assert gpu.is_locked()
    assert "the next start resets the clocks" in check_clock_service().found
    ClockKeeper.start().close()
    assert not gpu.is_locked()


def test_a_keeper_that_ends_leaves_no_lease_and_one_that_is_stopped_keeps_it(gpu, service):
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    os.kill(keeper.info.pid, signal.SIGSTOP)
    with pytest.raises(AssertionError):
        wait_for(lambda: not gpu.is_locked(), 1.5)
    os.kill(keeper.info.pid, signal.SIGCONT)
    keeper.close()
    assert not list(lease_directory().glob("*.lease"))
    ClockKeeper.start(device=DeviceConfig(backend="observe")).close()


def test_a_gpu_with_a_new_holder_is_left_alone(gpu):
    lease_directory().mkdir()
    old, new = hold("GPU-1", None), hold("GPU-1", None)
    os.close(old.lock)
    assert orphans(lease_directory()) == []
    os.close(new.lock)
    assert {orphan.path for orphan in orphans(lease_directory())} == {old.path, new.path}


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 3000, json.dumps({"uuid": 1, "restore_mhz": None}),
                                     json.dumps({"uuid": "GPU-1", "restore_mhz": True})])  # fmt: skip
def test_what_is_no_lease_names_no_gpu(gpu, content):
    lease_directory().mkdir()
    (lease_directory() / "1.lease").write_text(content)
    os.mkfifo(lease_directory() / "2.lease")
    (lease_directory() / "3.lease").symlink_to("/etc/passwd")
    (orphan,) = orphans(lease_directory())
    assert orphan.uuid == ""
