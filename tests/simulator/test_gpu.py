"""One virtual GPU used by many at once."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import StateFile, state_path

pytestmark = pytest.mark.against_the_clock("instructions last as long as the host lets them")

CURVES = {
    CurveKey(0, Kind.FORWARD): [ProfilePoint(1400, 0.05, 15.0), ProfilePoint(700, 0.1, 10.0)],
    CurveKey(0, Kind.BACKWARD): [ProfilePoint(1400, 0.1, 30.0)],
}


@pytest.fixture
def path(tmp_path):
    file = state_path(tmp_path, 0)
    create_gpu(file, GpuSpec(clocks_mhz=(1400, 1050, 700), switch_latency_s=0.005))
    VirtualGpu(file).load_curves(CURVES)
    return file


def test_an_instruction_without_a_curve_is_an_error(path):
    with pytest.raises(KeyError):
        VirtualGpu(path).begin_work(CurveKey(1, Kind.FORWARD))


def test_a_second_creation_leaves_the_gpu_as_it_is(path):
    gpu = VirtualGpu(path)
    gpu.lock_clock(700)
    assert not create_gpu(path, GpuSpec(clocks_mhz=(1000,)))
    assert VirtualGpu(path).clocks_mhz == (1400, 1050, 700)
    assert VirtualGpu(path).is_locked()


def test_a_file_that_is_no_state_is_refused(tmp_path):
    (tmp_path / "gpu").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a virtual GPU"):
        VirtualGpu(tmp_path / "gpu")


def ask_often(path, times):
    gpu = VirtualGpu(path)
    for _ in range(times):
        gpu.lock_clock(1400)


def test_no_request_is_lost_between_threads_and_processes(path):
    shared = VirtualGpu(path)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=ask_often, args=(path, 300)) for _ in range(2)]
    workers += [threading.Thread(target=lambda: [shared.lock_clock(700) for _ in range(300)]) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert shared.requests() == (1200, 0)


def hold_the_lock(path, holding):
    with StateFile(path).locked() as gpu:
        gpu.energy_j = -1.0
        holding.set()
        time.sleep(60)


def test_a_killed_holder_of_the_lock_leaves_the_old_state_and_no_lock(path):
    before_j = VirtualGpu(path).true_energy_j()
    context = multiprocessing.get_context("spawn")
    holding = context.Event()
    holder = context.Process(target=hold_the_lock, args=(path, holding))
    holder.start()
    assert holding.wait(30)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert VirtualGpu(path).true_energy_j() > before_j
