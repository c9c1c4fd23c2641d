"""Which GPU a rank gets, and through what."""

import pynvml
import pytest

from perseus_ds.device.mapping import nvml_handle
from perseus_ds.device.nvml import initialise_nvml
from perseus_ds.device.opening import open_gpu
from perseus_ds.messages import PerseusError


def uuid_of(**arguments):
    return pynvml.nvmlDeviceGetUUID(nvml_handle(**arguments))


def test_cuda_visible_devices_is_followed(make_gpus, monkeypatch):
    gpus = make_gpus(4)
    initialise_nvml()
    assert uuid_of(cuda_index=2) == gpus[2].uuid
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert uuid_of(cuda_index=0) == gpus[3].uuid
    assert uuid_of(cuda_index=1) == gpus[1].uuid
    with pytest.raises(PerseusError, match=r"CUDA device 2 .*CUDA_VISIBLE_DEVICES=3, 1"):
        uuid_of(cuda_index=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{gpus[2].uuid},{gpus[0].uuid[:12]}")
    assert uuid_of(cuda_index=0) == gpus[2].uuid
    assert uuid_of(cuda_index=1) == gpus[0].uuid
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(PerseusError, match=r"gpu-not-found"):
        uuid_of(cuda_index=0)


def test_uuid_and_bus_id_go_before_the_index(make_gpus, monkeypatch):
    gpus = make_gpus(3)
    initialise_nvml()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert uuid_of(cuda_index=0, uuid=gpus[2].uuid) == gpus[2].uuid
    assert uuid_of(cuda_index=0, uuid=gpus[2].uuid.removeprefix("GPU-")) == gpus[2].uuid  # as torch writes it
    bus_id = gpus[2].constants.pci_bus_id.decode()
    assert uuid_of(cuda_index=0, pci_bus_id=bus_id) == gpus[2].uuid
    with pytest.raises(PerseusError, match="gpu-not-found"):
        uuid_of(cuda_index=0, uuid="GPU-none-such")


def test_different_models_need_an_order(make_gpus, monkeypatch):
    make_gpus(1, name="Fast GPU")
    make_gpus(2, name="Slow GPU")
    initialise_nvml()
    with pytest.raises(PerseusError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        nvml_handle(0)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert pynvml.nvmlDeviceGetName(nvml_handle(0)) == "Fast GPU"


def test_mig_is_refused(make_gpus, monkeypatch):
    make_gpus(mig=True)
    with pytest.raises(PerseusError, match=r"MIG slices .*\[nvml-mig\]"):
        open_gpu(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1c1b1a19-1817-1615-1413-121110090807")
    with pytest.raises(PerseusError, match="nvml-mig"):
        open_gpu(0)


def test_auto_takes_nvml_where_it_may_and_clears_stale_locks(gpu):
    gpu.lock_clock(900)
    opened = open_gpu(0)
    assert (opened.backend, opened.gpu.sets_clocks) == ("nvml", True)
    assert not gpu.is_locked()


def test_a_gpu_reads_what_the_virtual_one_does(gpu):
    opened = open_gpu(0).gpu
    assert opened.supported_clocks_mhz == (1410, 1200, 900)
    assert (opened.sm_clock_mhz(), opened.throttle_reasons(), opened.power_limit_w()) == (1410, 0, 400.0)
    assert opened.energy_j() == pytest.approx(gpu.counter_mj() / 1000.0, abs=10.0)
    gpu.throttle(2.0)
    assert opened.throttle_reasons() == 0x40


def test_drivers_that_know_throttle_reasons_by_their_old_name_only(gpu, monkeypatch):
    opened = open_gpu(0).gpu
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def not_found(handle):
        raise missing

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", not_found)
    gpu.throttle(2.0)
    assert opened.throttle_reasons() == 0x40


def test_without_driver_the_message_offers_the_simulator(monkeypatch):
    monkeypatch.delenv("PERSEUS_DS_SIMULATOR", raising=False)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pynvml._nvmlCheckReturn(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    with pytest.raises(PerseusError, match=r"install the NVIDIA driver.*\[nvml-no-driver\]"):
        open_gpu(0)


def test_the_deprecated_package_of_the_same_name_is_recognised(monkeypatch):
    monkeypatch.delattr(pynvml, "_nvmlGetFunctionPointer")
    with pytest.raises(PerseusError, match="pip install nvidia-ml-py"):
        open_gpu(0)
