import pytest

from perseus_ds.simulator.driver import uninstall_driver
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path

CLOCKS_MHZ = (1410, 1200, 900)


@pytest.fixture
def make_gpus(tmp_path, monkeypatch):
    """Creates virtual GPUs, which this process and its children then see through NVML."""

    def make(count=1, **spec):
        values = {"clocks_mhz": CLOCKS_MHZ, "name": "Test GPU", "driver_version": "1.2.3", **spec}
        for index in range(count):
            create_gpu(state_path(tmp_path, index), GpuSpec(**values), index)
        return [VirtualGpu(state_path(tmp_path, index)) for index in range(count)]

    monkeypatch.setenv("PERSEUS_DS_SIMULATOR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield make
    uninstall_driver()


@pytest.fixture
def gpu(make_gpus):
    """One virtual GPU."""
    return make_gpus()[0]
