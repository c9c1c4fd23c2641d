"""``perseus-ds reset-clocks`` on virtual GPUs, as a process of its own."""

import os
import subprocess
import sys

import pytest
from waiting import wait_for

from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path


@pytest.fixture
def gpus(tmp_path):
    """Three virtual GPUs, all locked."""
    for index in range(3):
        create_gpu(state_path(tmp_path, index), GpuSpec(clocks_mhz=(1410, 900)), index)
    gpus = [VirtualGpu(state_path(tmp_path, index)) for index in range(3)]
    for gpu in gpus:
        gpu.lock_clock(900)
    return gpus


def reset_clocks(tmp_path, *arguments):
    environment = {**os.environ, "PERSEUS_DS_SIMULATOR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "2"}
    command = [sys.executable, "-m", "perseus_ds", "reset-clocks", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_every_gpu_is_reset_whatever_cuda_sees(gpus, tmp_path):
    ended = reset_clocks(tmp_path)
    assert (ended.returncode, ended.stdout.count("clocks reset through nvml")) == (0, 3)
    assert not any(gpu.is_locked() for gpu in gpus)


def test_one_gpu_can_be_chosen(gpus, tmp_path):
    assert reset_clocks(tmp_path, "--gpu", "1").returncode == 0
    assert [gpu.is_locked() for gpu in gpus] == [True, False, True]


def test_an_operator_s_lock_is_put_back_on_request(gpus, tmp_path):
    ended = reset_clocks(tmp_path, "--gpu", "1", "--restore-mhz", "1410")
    assert "locked at 1410 MHz through nvml" in ended.stdout
    assert gpus[1].is_locked()
    wait_for(lambda: gpus[1].sm_clock_mhz() == 1410)


def test_a_gpu_that_refuses_does_not_keep_the_others_locked(gpus, tmp_path):
    gpus[1].set_fault("no_permission")
    ended = reset_clocks(tmp_path)
    assert ended.returncode == 1
    assert "GPU 1: not reset" in ended.stderr
    assert "CAP_SYS_ADMIN" in ended.stderr
    assert [gpu.is_locked() for gpu in gpus] == [False, True, False]


def test_an_unknown_gpu_is_told(gpus, tmp_path):
    ended = reset_clocks(tmp_path, "--gpu", "9")
    assert ended.returncode == 1
    assert ended.stderr.startswith("GPU 9: ")
