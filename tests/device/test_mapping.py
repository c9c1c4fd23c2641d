"""Which of the driver's GPUs a rank computes on."""

import pytest

from perseus_ds.device.mapping import gpu_index
from perseus_ds.device.opening import open_driver
from perseus_ds.messages import PerseusError


@pytest.fixture
def index_of(make_gpus):
    """Returns the index of a rank's GPU among four."""
    make_gpus(4)
    driver = open_driver()
    return lambda *arguments: gpu_index(driver, *arguments)


def test_cuda_visible_devices_is_followed(index_of, monkeypatch):
    assert index_of(2) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert [index_of(0), index_of(1)] == [3, 1]
    with pytest.raises(PerseusError, match=r"CUDA device 2 .*CUDA_VISIBLE_DEVICES=3, 1"):
        index_of(2)
    uuids = [open_driver().open(index).uuid for index in range(4)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{uuids[2]},{uuids[0][:12]}")
    assert [index_of(0), index_of(1)] == [2, 0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with pytest.raises(PerseusError, match="gpu-not-found"):
        index_of(0)


def test_a_uuid_goes_before_the_index(index_of, monkeypatch):
    uuid = open_driver().open(2).uuid
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert index_of(0, uuid) == 2
    assert index_of(0, uuid.removeprefix("GPU-")) == 2  # as torch writes it
    with pytest.raises(PerseusError, match="gpu-not-found"):
        index_of(0, "GPU-none-such")


def test_different_models_need_an_order(make_gpus, monkeypatch):
    make_gpus(1, name="Fast GPU")
    make_gpus(2, name="Slow GPU")
    driver = open_driver()
    with pytest.raises(PerseusError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        gpu_index(driver, 0)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert driver.models()[gpu_index(driver, 0)] == "Fast GPU"
