"""NVML as Perseus sees it: what is read, what is set, and what its errors mean."""

import pynvml
import pytest

from perseus_ds.device.driver import (
    DriverError,
    DriverTimeout,
    GpuLost,
    NoDriver,
    NotPermitted,
    NotSupported,
    Remark,
    Throttle,
)
from perseus_ds.device.opening import open_driver, open_gpu
from perseus_ds.messages import PerseusError
from perseus_ds.simulator import driver


def test_mig_is_refused(make_gpus, monkeypatch):
    make_gpus(mig=True)
    with pytest.raises(PerseusError, match=r"MIG slices .*\[nvml-mig\]"):
        open_gpu(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1c1b1a19-1817-1615-1413-121110090807")
    with pytest.raises(PerseusError, match="nvml-mig"):
        open_gpu(0)


def test_a_gpu_reads_what_the_virtual_one_does(gpu):
    opened = open_gpu(0).gpu
    assert opened.supported_clocks_mhz == (1410, 1200, 900)
    assert (opened.index, opened.uuid, opened.name, opened.driver_version) == (0, gpu.uuid, "Test GPU", "1.2.3")
    assert opened.pci_bus_id == gpu.constants.pci_bus_id.decode()
    assert (opened.sm_clock_mhz(), opened.throttle(), opened.power_limit_w()) == (1410, Throttle(0), 400.0)
    assert opened.energy_j() == pytest.approx(gpu.counter_mj() / 1000.0, abs=10.0)
    gpu.throttle(2.0)
    assert opened.throttle() is Throttle.HARDWARE_THERMAL_SLOWDOWN


def test_a_gpu_that_shows_no_power_sampled_lately_says_so(gpu, monkeypatch):
    opened = open_gpu(0).gpu
    assert opened.power_w() == pytest.approx(gpu.power_w(), abs=0.001)
    monkeypatch.setattr(driver, "_FIELD_INSTANT_POWER", 0)
    with pytest.raises(NotSupported, match="cannot read the power"):
        opened.power_w()


def test_modes_are_ecc_and_the_workload_power_profiles_in_force(gpu, monkeypatch):
    opened = open_gpu(0).gpu
    assert opened.modes() == "ECC on", "virtual GPUs have no workload power profiles"

    def profiles(handle, found):
        found._obj.requestedProfilesMask.mask[0] = 0xFF
        found._obj.enforcedProfilesMask.mask[0], found._obj.enforcedProfilesMask.mask[1] = 0b10, 0b1

    def refused(handle):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", profiles)
    assert opened.modes() == "ECC on, workload power profile 1, workload power profile 32"
    monkeypatch.setattr(pynvml, "nvmlDeviceGetEccMode", refused)
    monkeypatch.delattr(pynvml, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles")
    assert opened.modes() == ""


def test_drivers_that_know_throttle_reasons_by_their_old_name_only(gpu, monkeypatch):
    opened = open_gpu(0).gpu
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def not_found(handle):
        raise missing

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", not_found)
    gpu.throttle(2.0)
    assert opened.throttle() is Throttle.HARDWARE_THERMAL_SLOWDOWN


def test_without_driver_the_message_offers_the_simulator(monkeypatch):
    monkeypatch.delenv("PERSEUS_DS_SIMULATOR", raising=False)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pynvml._nvmlCheckReturn(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    with pytest.raises(NoDriver, match=r"NVML does not start.*'simulator'.*\[driver-missing\]"):
        open_gpu(0)


def test_the_deprecated_package_of_the_same_name_is_recognised(monkeypatch):
    monkeypatch.delattr(pynvml, "_nvmlGetFunctionPointer")
    with pytest.raises(PerseusError, match="pip install nvidia-ml-py"):
        open_gpu(0)


def answer(monkeypatch, function, result):
    """Let NVML answer something else, or raise it."""

    def answered(*_):
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(pynvml, function, answered)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, NotSupported),
        (pynvml.NVML_ERROR_NO_PERMISSION, NotPermitted),
        (pynvml.NVML_ERROR_TIMEOUT, DriverTimeout),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        (pynvml.NVML_ERROR_RESET_REQUIRED, GpuLost),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, NoDriver),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, NoDriver),
        (pynvml.NVML_ERROR_UNKNOWN, DriverError),
    ],
)
def test_errors_have_the_type_that_says_what_to_do(gpu, monkeypatch, code, kind):
    opened = open_gpu(0).gpu
    answer(monkeypatch, "nvmlDeviceSetGpuLockedClocks", pynvml.NVMLError(code))
    with pytest.raises(DriverError) as raised:
        opened.lock_clock(900)
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("bit", "reason"),
    [
        (0x4, Throttle.SOFTWARE_POWER_CAP),
        (0x8, Throttle.HARDWARE_SLOWDOWN),
        (0x20, Throttle.SOFTWARE_THERMAL_SLOWDOWN),
        (0x40, Throttle.HARDWARE_THERMAL_SLOWDOWN),
        (0x80, Throttle.HARDWARE_POWER_BRAKE),
        (0x88, Throttle.HARDWARE_POWER_BRAKE | Throttle.HARDWARE_SLOWDOWN),
        (0x1 | 0x2 | 0x10 | 0x100, Throttle(0)),  # idle, our own lock, sync boost, display: not against our will
    ],
)
def test_nvmls_reasons_are_ours(gpu, monkeypatch, bit, reason):
    opened = open_gpu(0).gpu
    answer(monkeypatch, "nvmlDeviceGetCurrentClocksEventReasons", bit)
    assert opened.throttle() == reason


def test_reasons_that_cannot_be_read_are_an_error(gpu, monkeypatch):
    opened = open_gpu(0).gpu
    answer(monkeypatch, "nvmlDeviceGetCurrentClocksEventReasons", pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(GpuLost):
        opened.throttle()


def test_supported_clocks_are_those_of_the_fastest_memory_once_each_descending(gpu, monkeypatch):
    answer(monkeypatch, "nvmlDeviceGetSupportedMemoryClocks", [810, 1593])
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetSupportedGraphicsClocks", lambda _, mhz: {1593: [900, 1410, 900], 810: [210]}[mhz]
    )
    assert open_gpu(0).gpu.supported_clocks_mhz == (1410, 900)


def test_a_gpu_that_does_not_know_mig_is_fine(gpu, monkeypatch):
    answer(monkeypatch, "nvmlDeviceGetMigMode", pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert open_gpu(0).backend == "nvml"


def test_remarks_name_persistence_and_a_lowered_power_limit(gpu, monkeypatch):
    opened = open_gpu(0, "observe").gpu
    assert opened.remarks() == [], "a driver that does not tell is no cause for a remark"
    answer(monkeypatch, "nvmlDeviceGetPersistenceMode", 0)
    answer(monkeypatch, "nvmlDeviceGetPowerManagementDefaultLimit", 400_000)
    persistence, limit = opened.remarks()
    assert (persistence.about, persistence.remedy) == ("persistence", "nvidia-smi -pm 1")
    assert limit == Remark("power limit", "400 W")
    answer(monkeypatch, "nvmlDeviceGetPersistenceMode", 1)
    answer(monkeypatch, "nvmlDeviceGetPowerManagementDefaultLimit", 500_000)
    (limit,) = opened.remarks()
    assert limit.found.startswith("400 W of 500 W")
    assert "nvidia-smi -pl" in limit.remedy


def test_the_driver_counts_names_finds_and_ends(make_gpus):
    first, second = make_gpus(2)
    driver = open_driver()
    assert (driver.count(), driver.models()) == (2, ["Test GPU", "Test GPU"])
    assert [driver.find(gpu.uuid) for gpu in (first, second)] == [0, 1]
    assert driver.open(1).uuid == second.uuid
    with pytest.raises(DriverError, match="GPU 2"):
        driver.open(2)
    driver.close()
