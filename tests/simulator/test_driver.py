"""pynvml's own functions on virtual GPUs, in this process and in programs that load NVML themselves."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest

import perseus_ds.simulator
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.driver import install_driver, uninstall_driver
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path

SPEC = GpuSpec(clocks_mhz=(1410, 1200, 900), name="Test GPU", noise=0.02, counter_period_s=0.01, seed=7)
CURVE = {CurveKey(0, Kind.FORWARD): [ProfilePoint(1410, 0.3, 90.0), ProfilePoint(900, 0.4, 60.0)]}


@pytest.fixture
def gpus(tmp_path):
    """Two virtual GPUs beneath pynvml."""
    for index in range(2):
        create_gpu(state_path(tmp_path, index), SPEC, index)
    install_driver(tmp_path)
    pynvml.nvmlInit()
    yield [VirtualGpu(state_path(tmp_path, index)) for index in range(2)]
    pynvml.nvmlShutdown()
    uninstall_driver()


def test_handles_by_index_uuid_and_bus_id_mean_the_same_gpu(gpus):
    assert pynvml.nvmlDeviceGetCount() == 2
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
    for same in (
        pynvml.nvmlDeviceGetHandleByUUID(gpus[1].uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId(bus_id),
    ):
        assert pynvml.nvmlDeviceGetIndex(same) == 1
        assert pynvml.nvmlDeviceGetUUID(same) == gpus[1].uuid
    assert pynvml.nvmlDeviceGetName(handle) == "Test GPU"
    assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]


def test_clocks_are_the_specs(gpus):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory_mhz = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle))
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz) == [1410, 1200, 900]
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1410


def test_a_lock_is_seen_through_every_handle_and_only_on_its_gpu(gpus):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1300, 1300)
    time.sleep(0.02)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1200
    assert (gpus[0].is_locked(), gpus[1].is_locked()) == (True, False)
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    time.sleep(0.02)
    assert gpus[0].sm_clock_mhz() == 1410
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1300, 1200)


def test_energy_power_and_field_values_agree(gpus):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    gpus[0].load_curves(CURVE)
    gpus[0].begin_work(CurveKey(0, Kind.FORWARD))
    power_mw = pynvml.nvmlDeviceGetPowerUsage(handle)
    instant, absent = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT, 1])
    assert power_mw == 300_000
    assert (instant.nvmlReturn, instant.value.uiVal) == (pynvml.NVML_SUCCESS, 300_000)
    assert absent.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    before_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    time.sleep(0.1)
    gained_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before_mj
    assert 15_000 < gained_mj < 90_000


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("no_permission", pynvml.NVML_ERROR_NO_PERMISSION),
        ("not_supported", pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("gpu_is_lost", pynvml.NVML_ERROR_GPU_IS_LOST),
        ("timeout", pynvml.NVML_ERROR_TIMEOUT),
        ("unknown", pynvml.NVML_ERROR_UNKNOWN),
    ],
)
def test_injected_errors_are_nvmls_own_and_end_after_their_calls(gpus, fault, error):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    gpus[0].set_fault(fault, calls=2)
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError) as raised:
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, 900, 900)
        assert raised.value.value == error
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 900, 900)
    assert gpus[0].is_locked()


def test_the_counter_freezes_and_wraps(gpus):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    time.sleep(0.1)
    gpus[0].set_fault("frozen_counter")
    frozen_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    time.sleep(0.05)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == frozen_mj > 0
    gpus[0].set_fault("counter_wrap")
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) < frozen_mj / 2


def test_what_the_driver_lacks_is_not_found_as_with_an_old_driver(gpus):
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetFanSpeed(pynvml.nvmlDeviceGetHandleByIndex(0))


def test_an_unknown_fault_is_refused(gpus):
    with pytest.raises(ValueError, match="no such fault"):
        gpus[0].set_fault("on_fire")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The stub, built with the system's compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    target = tmp_path_factory.mktemp("lib") / "libnvidia-ml.so.1"
    source = Path(perseus_ds.simulator.__file__).parent / "libnvidia_ml_stub.c"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", target, source, "-lpthread"], check=True)
    return target


FOREIGN_PROGRAM = """
import sys, time
from pynvml import *
nvmlInit()
handle = nvmlDeviceGetHandleByIndex(nvmlDeviceGetCount() - 1)
assert nvmlDeviceGetUUID(handle) == sys.argv[1]
assert nvmlDeviceGetHandleByUUID(sys.argv[1]).contents is not None
assert nvmlDeviceGetName(handle) == "Test GPU"
assert nvmlDeviceGetPciInfo(handle).bus == 2
assert nvmlDeviceGetSupportedGraphicsClocks(handle, 1215) == [1410, 1200, 900]
assert nvmlDeviceGetClockInfo(handle, NVML_CLOCK_SM) == 1410
nvmlDeviceSetGpuLockedClocks(handle, 900, 900)
time.sleep(0.05)
assert nvmlDeviceGetClockInfo(handle, NVML_CLOCK_SM) == 900
assert nvmlDeviceGetCurrentClocksEventReasons(handle) == 0
time.sleep(0.5)
print(nvmlDeviceGetTotalEnergyConsumption(handle))
"""


def foreign_environment(library, state_dir):
    simulator = {"PERSEUS_DS_SIMULATOR": str(state_dir), "PERSEUS_DS_PYTHON": sys.executable}
    return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), **simulator}


def test_an_unmodified_program_meets_the_same_gpu(gpus, library, tmp_path):
    for gpu in gpus:
        gpu.load_curves(CURVE)
    gpus[1].begin_work(CurveKey(0, Kind.FORWARD))
    environment = foreign_environment(library, tmp_path)
    program = [sys.executable, "-c", FOREIGN_PROGRAM, gpus[1].uuid]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert gpus[1].is_locked()
    assert not gpus[0].is_locked()
    # Waiting now, both count the same power: what is left is noise and the time between the two readings.
    later_mj = gpus[1].counter_mj()
    assert later_mj >= int(ended.stdout)
    assert later_mj - int(ended.stdout) < 83.64 * 1000.0 * 5.0


MEGATRONS_ENERGY_LOG = """
import importlib.util, pathlib, time, types
import torch
[root, *_] = importlib.util.find_spec("megatron").submodule_search_locations
spec = importlib.util.spec_from_file_location("energy_monitor", pathlib.Path(root) / "core" / "energy_monitor.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
# Its tensors are to be on the CPU here, and the only rank has nobody to add up with.
cuda = types.SimpleNamespace(current_device=lambda: 0)
tensor = lambda values, dtype, device: torch.tensor(values, dtype=dtype)
module.torch = types.SimpleNamespace(cuda=cuda, tensor=tensor, int64=torch.int64)
module.dist = types.SimpleNamespace(all_reduce=lambda *_, **__: None, ReduceOp=torch.distributed.ReduceOp)
monitor = module.EnergyMonitor()
monitor.setup()
monitor.resume()
begin = time.monotonic()
time.sleep(1.0)
print(monitor.lap() / (time.monotonic() - begin))
"""


def test_megatrons_log_energy_meets_the_virtual_gpu(gpus, library, tmp_path):
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed")
    environment = foreign_environment(library, tmp_path)
    program = [sys.executable, "-c", MEGATRONS_ENERGY_LOG]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) == pytest.approx(83.64, rel=0.1)
