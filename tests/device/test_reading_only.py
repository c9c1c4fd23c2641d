"""A process that only reads GPUs: the real pynvml above the simulated driver sets and resets nothing."""

import inspect
import re
import subprocess
import sys

import pynvml
import pytest

from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.opening import open_gpu
from perseus_ds.device.reading_only import READING_ONLY_VARIABLE, SettingForbidden, forbid_setting

VERBS = "Set|Reset|Clear|Modify|Create|Destroy|Remove|Freeze|Update|Activate|Power|Register"
CHANGES = re.compile(rf"nvml(Device|System|Unit|GpuInstance|ComputeInstance|Vgpu\w*?|EventSet|Gpm\w*?)?({VERBS})")


@pytest.fixture
def read_only(monkeypatch):
    """This process until the test's end, and its children, only read."""
    monkeypatch.setenv(READING_ONLY_VARIABLE, "1")
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", pynvml._nvmlGetFunctionPointer)
    forbid_setting()


def pointers() -> set[str]:
    """Every C function that pynvml can call."""
    return set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', inspect.getsource(pynvml)))


def is_refused(name: str) -> bool:
    try:
        pynvml._nvmlGetFunctionPointer(name)
    except SettingForbidden:
        return True
    except pynvml.NVMLError:
        pass
    return False


def test_every_function_that_may_change_something_is_refused(gpu, read_only):
    open_gpu(0)
    allowed = {name for name in pointers() if not is_refused(name)}
    assert {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues", "nvmlShutdown"} <= allowed
    changing = {name for name in pointers() if CHANGES.match(name)}
    assert len(changing) > 40
    assert allowed & changing == set()


def test_the_calls_of_our_own_driver_raise(gpu, read_only):
    opened = open_gpu(0, "nvml")
    assert (opened.backend, opened.gpu.sets_clocks) == ("observe", False), "whatever was asked for"
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for forbidden in (
        lambda: pynvml.nvmlDeviceSetGpuLockedClocks(handle, 900, 900),
        lambda: pynvml.nvmlDeviceResetGpuLockedClocks(handle),
        lambda: pynvml.nvmlDeviceSetPowerManagementLimit(handle, 100_000),
    ):
        with pytest.raises(SettingForbidden, match="only reads"):
            forbidden()
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1410
    assert gpu.requests() == (0, 0)


def test_without_the_guard_the_same_calls_change_the_clocks(gpu):
    open_gpu(0)
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 900, 900)
    assert gpu.requests() == (2, 1)


def test_a_keeper_of_such_a_process_sets_nothing_however_it_is_asked(gpu, read_only):
    keeper = ClockKeeper.start(device=DeviceConfig(backend="nvml"), calibrate=True)
    keeper.set_mhz(900)
    keeper.reset_clocks()
    keeper.close()
    assert (keeper.info.backend, keeper.info.sets_clocks) == ("observe", False)
    assert gpu.requests() == (0, 0)


def test_a_child_that_asks_nvml_itself_is_refused(gpu, read_only):
    resets = "from perseus_ds.device.nvml import NvmlDriver; d = NvmlDriver(); d.start(); d.open(0).reset_clocks()"
    done = subprocess.run([sys.executable, "-c", resets], capture_output=True, text=True, timeout=60)
    assert "SettingForbidden" in done.stderr
    assert gpu.requests() == (0, 0)
